/* test_conf.c - settings files: what is accepted, the exact line for what is not (B172 to B182), and which files are read. */
#include "comma_locale.h"
#include "host_test.h"

#include <sys/stat.h>

static gdn_status parse(const char *text, size_t n, gdn__ini *ini, reason *r) {
    memset(ini, 0, sizeof *ini);
    return gdn__ini_parse("t.ini", text, n, ini, reason_of(r));
}

static void drop(gdn__ini *ini) {
    for (int i = 0; i < GDN__LEVERS; i++) free(ini->value[i]);
}

static void expect_read(const char *text, const char *key, const char *value, uint32_t line) {
    gdn__ini ini;
    reason r;
    if (parse(text, strlen(text), &ini, &r) != GDN_OK) fail_msg("refused: %s", r.buf);
    const int i = gdn__lever_find(key);
    if (!ini.value[i]) fail_msg("%s was lost in: %s", key, text);
    assert_string_equal(ini.value[i], value);
    assert_int_equal(ini.line[i], line);
    drop(&ini);
}

static void expect_refusal(const char *text, size_t n, const char *said) {
    gdn__ini ini;
    reason r;
    assert_int_equal(parse(text, n, &ini, &r), GDN_E_CONF);
    if (strcmp(r.buf, said) != 0) fail_msg("said '%s', expected '%s'", r.buf, said);
    drop(&ini);
}
#define REFUSED(text, said) expect_refusal(text, strlen(text), said)

static void test_accepted(void **state) {
    (void)state;
    expect_read("[defaults]\ngdn_woa=1", "gdn_woa", "1", 2);                                /* no newline at the end */
    expect_read("[defaults]\r\ngdn_woa = 1\r\n", "gdn_woa", "1", 2);                        /* CRLF */
    expect_read("\xef\xbb\xbf[defaults]\ngdn_woa = 1\n", "gdn_woa", "1", 2);                /* BOM */
    expect_read("\n\n ; c\n# c\n[defaults] ; c\n\n\tgdn_woa\t=\t1\t\n", "gdn_woa", "1", 7); /* blanks, comments */
    expect_read("[defaults]\ngdn_woa = 1 ; note = 2\n", "gdn_woa", "1", 2);                 /* comment behind a value */
    expect_read("[defaults]\ngdn_pipe = a#b;c\n", "gdn_pipe", "a#b;c", 2);                  /* B175: no blank before */
    expect_read("[defaults]\nw4a4_mx_nt =  4   ; note\n", "w4a4_mx_nt", "4", 2);            /* B175: trimmed */
    expect_read("[defaults]\ngdn_pipe = a b\n", "gdn_pipe", "a b", 2);
    expect_read("[defaults]\n[defaults]\ngdn_pipe = 1\n", "gdn_pipe", "1", 3);
    expect_read("[defaults]\ngdn_pipe = [x]\n", "gdn_pipe", "[x]", 2);
    expect_read("[defaults]\ngdn_pipe = a=b\n", "gdn_pipe", "a=b", 2);
    gdn__ini ini;
    reason r;
    assert_int_equal(parse("", 0, &ini, &r), GDN_OK);
    assert_int_equal(parse("[defaults]\n", 11, &ini, &r), GDN_OK);
    for (int i = 0; i < GDN__LEVERS; i++) assert_null(ini.value[i]);
}

/* B172: an indented key is a key of its own, not a continuation. */
static void test_indented(void **state) {
    (void)state;
    const char *text = "[defaults]\nw4a4_mx_nt = 1\n  w4a4_mx_ps = 0\n\tgdn_woa = 1\n";
    expect_read(text, "w4a4_mx_nt", "1", 2);
    expect_read(text, "w4a4_mx_ps", "0", 3);
    expect_read(text, "gdn_woa", "1", 4);
    REFUSED("[defaults]\ngdn_pipe = 1\n  more\n", "t.ini:3: not 'key = value', a [section] or a comment");
}

/* B174: long lines. A value that would be cut is refused with its line; comments may be long; 199 bytes still fit. */
static void test_long_lines(void **state) {
    (void)state;
    static char text[8192];
    char value[256], *p = text;
    p += sprintf(p, "[defaults]\n; ");
    memset(p, 'c', 5000), p += 5000;
    p += sprintf(p, "\ngdn_pipe = 1\n");
    expect_read(text, "gdn_pipe", "1", 3);
    p += sprintf(p, "gdn_vtile = ");
    memset(p, 'v', 1000), p += 1000;
    p += sprintf(p, "\n");
    REFUSED(text, "t.ini:4: the line is 1012 bytes long, at most 199 are read");
    const size_t fits = 199 - strlen("gdn_vtile = ");
    memset(value, 'v', fits);
    value[fits] = '\0';
    (void)sprintf(text, "[defaults]\ngdn_vtile = %s\n", value);
    expect_read(text, "gdn_vtile", value, 2);
    (void)sprintf(text, "[defaults]\ngdn_vtile = %sv\n", value);
    REFUSED(text, "t.ini:2: the line is 200 bytes long, at most 199 are read");
}

static void test_refused(void **state) {
    (void)state;
    /* B178: typos and misplaced keys, B181: file, line and key in the message */
    REFUSED("[defaults]\n\n\n\n\n\nw4a4_mx_mt = 4\n", "t.ini:7: w4a4_mx_mt: unknown key; did you mean w4a4_mx_nt?");
    REFUSED("[defaults]\nxyzzy_plugh = 4\n", "t.ini:2: xyzzy_plugh: unknown key");
    REFUSED("gdn_woa = 1\n[defaults]\n", "t.ini:1: gdn_woa: a key outside a section; put it under [defaults]");
    REFUSED("[default]\n", "t.ini:1: unknown section [default]; the only one is [defaults]");
    REFUSED("[defaults]\n[levers]\ngdn_woa = 1\n", "t.ini:2: unknown section [levers]; the only one is [defaults]");
    REFUSED("[]\n", "t.ini:1: unknown section []; the only one is [defaults]");
    REFUSED("[defaults\n", "t.ini:1: a section header without ']'");
    REFUSED("[defaults] gdn_woa = 1\n", "t.ini:1: text behind a section header");
    REFUSED("[Defaults]\n", "t.ini:1: unknown section [Defaults]; the only one is [defaults]");
    /* B173: a duplicate is an error that names both lines */
    REFUSED("[defaults]\ngdn_woa = 1\n\ngdn_woa = 0\n", "t.ini:4: gdn_woa: set before, in line 2");
    REFUSED("[defaults]\ngdn_woa = 1\n[defaults]\ngdn_woa = 1\n", "t.ini:4: gdn_woa: set before, in line 2");
    /* B179: empty values and keys without one, also behind an earlier fault: the first is told */
    REFUSED("[defaults]\ngdn_woa =\n", "t.ini:2: gdn_woa: no value; leave the key out for the built-in one");
    REFUSED("[defaults]\ngdn_woa = ; c\n", "t.ini:2: gdn_woa: no value; leave the key out for the built-in one");
    REFUSED("[defaults]\ngdn_woa\n", "t.ini:2: not 'key = value', a [section] or a comment");
    REFUSED("[defaults]\nbad\ngdn_woa =\n", "t.ini:2: not 'key = value', a [section] or a comment");
    REFUSED("[defaults]\n= 1\n", "t.ini:2: : unknown key");
    /* values outside the grammar */
    REFUSED("[defaults]\ngdn_prefill_tc = 1\n", "t.ini:2: gdn_prefill_tc = 1: expected true or false");
    REFUSED("[defaults]\ngdn_prefill_tc = True\n", "t.ini:2: gdn_prefill_tc = True: expected true or false");
    REFUSED("[defaults]\nw4a4_mx_nt = 2\n", "t.ini:2: w4a4_mx_nt = 2: expected 1 or 4");
    REFUSED("[defaults]\nw4a4_mx_ps = true\n", "t.ini:2: w4a4_mx_ps = true: expected 0 or 1");
    REFUSED("[defaults]\ngdn_woa = true\n", "t.ini:2: gdn_woa = true: expected 0 or 1");
    REFUSED("[defaults]\ncpu_isa = AVX2\n", "t.ini:2: cpu_isa = AVX2: expected auto, base, avx2 or avx512");
    REFUSED("[defaults]\ngdn_no_prefill_tc = true\n",
            "t.ini:2: gdn_no_prefill_tc: a switch of the environment (METRALE_NO_GDN_PREFILL_TC), not of files; write "
            "gdn_prefill_tc = false");
    REFUSED("[defaults]\ngdn_no_fwd_o_mma8 = true\n",
            "t.ini:2: gdn_no_fwd_o_mma8: a switch of the environment (METRALE_NO_GDN_FWD_O_MMA8), not of files");
    /* what would be read as something else than it looks like */
    REFUSED("[defaults]\ngdn_pipe = 1 # note\n", "t.ini:2: gdn_pipe: ' #' inside a value: a comment behind a value begins with ' ;'");
    expect_refusal("[defaults]\ngdn_pipe = 1\0x\n", 25, "t.ini:2: control character 0x00");
    REFUSED("[defaults]\ngdn_woa = 1\rgdn_pipe = 1\n", "t.ini:2: control character 0x0d");
    REFUSED("[defaults]\n\vgdn_woa = 1\n", "t.ini:2: control character 0x0b");
}

/* B176: nothing depends on the host's locale, and the locale is left as it was. The one with a comma is made here. */
static void test_locale(void **state) {
    (void)state;
    const char *comma = NULL;
    const locale_t made = comma_locale_make(&comma);
    const char *const names[] = { "C", "C.utf8", "de_DE.UTF-8", "tr_TR.UTF-8", "en_US.ISO-8859-1" };
    if (made) {
        assert_non_null(setlocale(LC_NUMERIC, comma));
        assert_string_equal(localeconv()->decimal_point, ",");
        expect_read("[defaults]\ngdn_prefill_tc = true\nw4a4_mx_nt = 1\n", "w4a4_mx_nt", "1", 3);
        assert_string_equal(setlocale(LC_NUMERIC, NULL), comma);
        assert_non_null(setlocale(LC_NUMERIC, "C"));
        freelocale(made);
    }
    comma_locale_remove();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!setlocale(LC_ALL, names[i])) continue; /* not installed here */
        char *before = strdup(setlocale(LC_ALL, NULL));
        expect_read("[defaults]\ngdn_prefill_tc = true\nw4a4_mx_nt = 1\n", "w4a4_mx_nt", "1", 3);
        assert_string_equal(setlocale(LC_ALL, NULL), before);
        free(before);
    }
    assert_non_null(setlocale(LC_ALL, "C"));
}

static void test_load(void **state) {
    (void)state;
    char dir[64], path[128];
    gdn__ini *ini = NULL;
    reason r;
    (void)snprintf(path, sizeof path, "%s/x.ini", make_folder(dir));
    assert_int_equal(gdn__ini_load(path, &ini, reason_of(&r)), GDN_ABSENT);
    write_file(path, "[defaults]\ngdn_woa = x\n", 23);
    assert_int_equal(gdn__ini_load(path, &ini, reason_of(&r)), GDN_E_CONF);
    assert_contains(r.buf, path);
    assert_contains(r.buf, ":2: gdn_woa = x: expected 0 or 1");
    assert_null(ini);
    write_file(path, "[defaults]\ngdn_woa = 1\n", 23);
    assert_int_equal(gdn__ini_load(path, &ini, reason_of(&r)), GDN_OK);
    assert_string_equal(ini->value[GDN__L_WOA], "1");
    gdn__ini_free(ini);
    assert_int_equal(gdn__ini_load(dir, &ini, reason_of(&r)), GDN_E_CONF);
    assert_contains(r.buf, "a directory");
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    assert_int_equal(gdn__ini_load(path, &ini, reason_of(&r)), GDN_E_CONF);
    assert_contains(r.buf, "above 1 MiB");
    /* Every allocation failed in turn. */
    write_file(path, "[defaults]\ngdn_woa = 1\n", 23);
    int failures = 0;
    for (int32_t n = 0;; n++, failures++) {
        atomic_store(&gdn__alloc_fail_in, n);
        const gdn_status st = gdn__ini_load(path, &ini, reason_of(&r));
        if (atomic_exchange(&gdn__alloc_fail_in, -1) >= 0) {
            assert_int_equal(st, GDN_OK);
            gdn__ini_free(ini);
            break;
        }
        assert_int_equal(st, GDN_E_NOMEM);
        assert_null(ini);
    }
    assert_int_equal(failures, 4); /* text, struct, path, one value */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void find(char *const *vars, const char *target, const char *extra, gdn__conf *out, gdn_status want, heard *h, reason *r) {
    gdn__env env;
    const gdn__log log = log_to(h, GDN_LOG_INFO);
    assert_int_equal(gdn__env_capture(&env, vars, false), GDN_OK);
    const gdn_status st = gdn__conf_find(&env, target, extra, out, &log, reason_of(r));
    if (st != want) fail_msg("status %d, expected %d: %s", st, want, r->buf);
    gdn__env_drop(&env);
}

static void test_which_files(void **state) {
    (void)state;
    char dir[64], path[128], extra[128], var[128], conf_var[160];
    gdn__conf conf;
    heard h;
    reason r;
    (void)snprintf(path, sizeof path, "%s/fixture_t.ini", make_folder(dir));
    (void)snprintf(extra, sizeof extra, "%s/more.ini", dir);
    (void)snprintf(var, sizeof var, "GDN_CONF_DIR=%s", dir);
    (void)snprintf(conf_var, sizeof conf_var, "GDN_CONF=%s", extra);
    char *none[] = { NULL }, *folder[] = { var, NULL }, *both[] = { var, conf_var, NULL };
    /* The source tree is the last resort for the shipped targets. */
    find(none, "cpu", NULL, &conf, GDN_OK, &h, &r);
    assert_int_equal(conf.n, 1);
    assert_string_equal(conf.label[0], "cpu.ini");
    /* No file: all built in, and the log says so. */
    find(folder, "fixture_t", NULL, &conf, GDN_OK, &h, &r);
    assert_int_equal(conf.n, 0);
    assert_contains(h.text, "conf: no fixture_t.ini: all levers have their built-in values");
    write_file(path, "[defaults]\ngdn_woa = 1\n", 23);
    find(folder, "fixture_t", NULL, &conf, GDN_OK, &h, &r);
    assert_int_equal(conf.n, 1);
    assert_string_equal(conf.file[0]->path, path);
    assert_int_equal(h.lines, 0);
    /* Once read, a file is what it was: later opens share it. */
    write_file(path, "[defaults]\ngdn_woa = 0\n", 23);
    find(folder, "fixture_t", NULL, &conf, GDN_OK, &h, &r);
    assert_string_equal(conf.file[0]->value[GDN__L_WOA], "1");
    /* One more file, by name or by variable: stronger, and it must be there. */
    find(both, "fixture_t", NULL, &conf, GDN_E_CONF, &h, &r);
    assert_contains(r.buf, conf_var);
    assert_contains(r.buf, "no such file");
    write_file(extra, "[defaults]\ngdn_pipe = 1\n", 24);
    find(both, "fixture_t", NULL, &conf, GDN_OK, &h, &r);
    assert_int_equal(conf.n, 2);
    assert_string_equal(conf.label[1], extra);
    find(both, "fixture_t", "/nonexistent/x.ini", &conf, GDN_E_CONF, &h, &r); /* the API's name wins over the variable's */
    assert_string_equal(r.buf, "conf=/nonexistent/x.ini: no such file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(extra), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),    cmocka_unit_test(test_indented), cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_locale),   cmocka_unit_test(test_load),
        cmocka_unit_test(test_which_files),
    };
    return cmocka_run_group_tests_name("conf", tests, NULL, NULL) != 0;
}
