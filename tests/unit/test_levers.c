/* test_levers.c - every row of the lever table, the four grammars, precedence, and what a plugin sees. */
#include "host_test.h"

enum { MAX_VARS = 8 };

/* One resolution: environment, up to two files as text, settings. */
typedef struct input {
    const char *vars[MAX_VARS]; /* "NAME=VALUE" */
    const char *vendor, *local; /* ini texts */
    gdn_setting settings[4];
} input;

static gdn_status resolve(const input *in, uint32_t level, heard *h, gdn_lever_set **set, gdn_text *err) {
    char *vars[MAX_VARS + 1] = { 0 };
    gdn__env env;
    gdn__ini files[2];
    gdn__conf conf = { .n = 0 };
    const char *texts[2] = { in->vendor, in->local }, *names[2] = { "t.ini", "local.ini" };
    const gdn__log log = log_to(h, level);
    uint32_t n_settings = 0;
    memset(files, 0, sizeof files);
    for (int i = 0; i < MAX_VARS && in->vars[i]; i++) assert_non_null(vars[i] = strdup(in->vars[i]));
    for (int i = 0; i < 2; i++) {
        if (!texts[i]) continue;
        assert_int_equal(gdn__ini_parse(names[i], texts[i], strlen(texts[i]), &files[i], err), GDN_OK);
        conf.file[conf.n] = &files[i];
        conf.label[conf.n++] = names[i];
    }
    while (n_settings < 4 && in->settings[n_settings].key) n_settings++;
    assert_int_equal(gdn__env_capture(&env, vars, false), GDN_OK);
    const gdn_status st = gdn__levers_resolve(&env, &conf, in->settings, n_settings, &log, set, err);
    gdn__env_drop(&env);
    for (int i = 0; i < MAX_VARS; i++) free(vars[i]);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < GDN__LEVERS; k++) free(files[i].value[k]);
    return st;
}

/* The value of one key, which must resolve; where and source are optional expectations. */
static void expect(const input *in, const char *key, const char *value, const char *where, int source) {
    gdn_lever_set *set = NULL;
    heard h;
    reason r;
    gdn_text *err = reason_of(&r);
    const gdn_status st = resolve(in, GDN_LOG_INFO, &h, &set, err);
    if (st != GDN_OK) fail_msg("%s (%s): status %d: %s", key, in->vars[0] ? in->vars[0] : "no environment", st, r.buf);
    const int i = gdn__lever_find(key);
    assert_true(i >= 0);
    const char *got = set->at[i].value;
    if ((got == NULL) != (value == NULL) || (got && strcmp(got, value) != 0))
        fail_msg("%s with %s: '%s', expected '%s'", key, in->vars[0] ? in->vars[0] : "no environment", got ? got : "(unset)",
                 value ? value : "(unset)");
    if (where) assert_string_equal(set->at[i].where, where);
    if (source >= 0) assert_int_equal(set->at[i].source, source);
    gdn_levers_free(set);
}

static void expect_error(const input *in, gdn_status status, const char *text) {
    gdn_lever_set *set = (gdn_lever_set *)1;
    heard h;
    reason r;
    gdn_text *err = reason_of(&r);
    assert_int_equal(resolve(in, GDN_LOG_INFO, &h, &set, err), status);
    assert_null(set);
    assert_string_equal(r.buf, text);
}

/* The table of docs/levers.md: key, built in and the three shipped columns. */
static const struct {
    const char *key, *builtin, *column[3], *env, *grammar;
} table[] = {
    { "gdn_prefill_tc", "false", { "false", "false", "true" }, "METRALE_GDN_PREFILL_TC", "toggle" },
    { "gdn_no_prefill_tc", NULL, { NULL, NULL, NULL }, "METRALE_NO_GDN_PREFILL_TC", "presence" },
    { "gdn_no_fwd_o_mma8", NULL, { NULL, NULL, NULL }, "METRALE_NO_GDN_FWD_O_MMA8", "presence" },
    { "gdn_prefill_fast", "false", { "false", "false", "true" }, "METRALE_GDN_PREFILL_FAST", "toggle" },
    { "gdn_prefill_fast_wn", "false", { "false", "false", "false" }, "METRALE_GDN_PREFILL_FAST_WN", "toggle" },
    { "gdn_launch_early", "true", { "true", "true", "true" }, "METRALE_GDN_LAUNCH_EARLY", "toggle" },
    { "ssm_ba_gates_hopper", "false", { "false", "false", "true" }, "METRALE_SSM_BA_GATES_HOPPER", "toggle" },
    { "ssm_ba_gates_tc", "false", { "false", "false", "true" }, "METRALE_SSM_BA_GATES_TC", "toggle" },
    { "gdn_pipe", NULL, { NULL, NULL, NULL }, "METRALE_GDN_PIPE", "exact string" },
    { "gdn_vtile", NULL, { NULL, NULL, NULL }, "METRALE_GDN_VTILE", "exact string" },
    { "gdn_woa", "0", { "0", "0", "0" }, "METRALE_GDN_WOA", "exact string" },
    { "w4a4_mx_nt", "4", { "4", "4", "4" }, "METRALE_W4A4_MX_NT", "strict" },
    { "w4a4_mx_ps", "1", { "1", "1", "1" }, "METRALE_W4A4_MX_PS", "strict" },
    { "cpu_isa", "auto", { "auto", NULL, NULL }, "GDN_CPU_ISA", "strict" },
};
enum { ROWS = sizeof table / sizeof *table };
static const char *const targets[3] = { "cpu", "gb10", "hopper" };

static void test_table_is_the_list(void **state) {
    (void)state;
    /* The first difference, with what to do about it: docs/add_a_lever.md. */
    for (int i = 0; i < ROWS || i < GDN__LEVERS; i++) {
        if (i >= ROWS || (i < GDN__LEVERS && strcmp(table[i].key, gdn__lever_defs[i].key) != 0))
            fail_msg(
                "row %d of host/levers.def is %s, here it is %s: add its row to table[] of tests/unit/test_levers.c (docs/add_a_lever.md)",
                i, gdn__lever_defs[i].key, i < ROWS ? table[i].key : "missing");
        if (i >= GDN__LEVERS) fail_msg("%s is in table[] of tests/unit/test_levers.c but not in host/levers.def", table[i].key);
    }
    gdn_lever_set *set = NULL;
    heard h;
    const input none = { .vars = { NULL } };
    assert_int_equal(resolve(&none, GDN_LOG_INFO, &h, &set, NULL), GDN_OK);
    for (uint32_t i = 0; i < ROWS; i++) {
        gdn_lever_info info = { .struct_size = (uint32_t)sizeof info };
        assert_int_equal(gdn_levers_at(set, i, &info), GDN_OK);
        assert_string_equal(info.key, table[i].key);
        assert_string_equal(info.env, table[i].env);
        assert_string_equal(info.grammar, table[i].grammar);
        assert_string_equal(info.where, "built in");
        assert_int_equal(info.source, GDN_FROM_BUILTIN);
        assert_true(strlen(info.meaning) > 10);
        expect(&none, table[i].key, table[i].builtin, "built in", GDN_FROM_BUILTIN);
    }
    gdn_levers_free(set);
}

/* Every shipped file sets every key of its column, nothing else, and each key has a comment line above it. */
static void test_shipped_files(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++) {
        char path[512], line[256], before[256] = "";
        gdn__ini *ini = NULL;
        reason r;
        (void)snprintf(path, sizeof path, "%s/conf/%s.ini", GDN_SOURCE_DIR, targets[t]);
        if (gdn__ini_load(path, &ini, reason_of(&r)) != GDN_OK) fail_msg("%s", r.buf);
        for (int i = 0; i < ROWS; i++) {
            const char *want = table[i].column[t], *got = ini->value[gdn__lever_find(table[i].key)];
            if ((want == NULL) != (got == NULL) || (want && strcmp(want, got) != 0))
                fail_msg("%s: %s is %s, expected %s, as table[] of tests/unit/test_levers.c says", path, table[i].key,
                         got ? got : "(unset)", want ? want : "(unset)");
        }
        gdn__ini_free(ini);
        FILE *f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof line, f)) {
            if (strchr("gswc", line[0]) && before[0] != ';') fail_msg("%s: no comment line above: %s", path, line);
            (void)strcpy(before, line);
        }
        assert_int_equal(fclose(f), 0);
    }
}

/* docs/levers.md has the same table: one row a lever, in order, with the columns and the variable. */
static void test_document(void **state) {
    (void)state;
    char line[1024];
    int next = 0;
    FILE *f = fopen(GDN_SOURCE_DIR "/docs/levers.md", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "| `", 3) != 0) continue;
        char want[256], env[96];
        if (next == ROWS) fail_msg("docs/levers.md has a row more than host/levers.def: %s", line);
        const char *columns[3];
        for (int t = 0; t < 3; t++)
            columns[t] = table[next].column[t] ? table[next].column[t] : strstr(table[next].key, "_no_") ? "-" : "unset";
        if (!strcmp(table[next].key, "cpu_isa")) columns[1] = columns[2] = "-";
        (void)snprintf(want, sizeof want, "| `%s` | %s | %s | %s", table[next].key, columns[0], columns[1], columns[2]);
        (void)snprintf(env, sizeof env, "| `%s`", table[next].env);
        if (strncmp(line, want, strlen(want)) != 0 || !strstr(line, env))
            fail_msg("docs/levers.md: a row '%s ... %s` ...' belongs where this one is: %s", want, env, line);
        next++;
    }
    assert_int_equal(fclose(f), 0);
    if (next != ROWS) fail_msg("docs/levers.md has no row for %s: add '| `%s` | ...'", table[next].key, table[next].key);
}

static void test_toggle(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *value;
    } rows[] = { { "0", "false" },     { "false", "false" },   { "off", "false" },        { "no", "false" },
                 { "FALSE", "false" }, { " Off\t", "false" },  { "\n0 ", "false" },       { "NO", "false" },
                 { "", "true" },       { " ", "true" },        { "1", "true" },           { "true", "true" },
                 { "yes", "true" },    { "00", "true" },       { "falsey", "true" },      { "n o", "true" },
                 { "2", "true" },      { "disabled", "true" }, { "f\xc3\xa4lse", "true" } };
    static const char *const keys[] = { "gdn_prefill_tc",   "gdn_prefill_fast",    "gdn_prefill_fast_wn",
                                        "gdn_launch_early", "ssm_ba_gates_hopper", "ssm_ba_gates_tc" };
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const char *env = gdn__lever_defs[gdn__lever_find(keys[k])].env;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            char var[128], on[64], off[64];
            (void)snprintf(var, sizeof var, "%s=%s", env, rows[i].text);
            (void)snprintf(on, sizeof on, "[defaults]\n%s = true\n", keys[k]);
            (void)snprintf(off, sizeof off, "[defaults]\n%s = false\n", keys[k]);
            /* Present: it decides, whatever the file says. */
            expect(&(input) { .vars = { var }, .vendor = on }, keys[k], rows[i].value, env, GDN_FROM_ENV);
            expect(&(input) { .vars = { var }, .vendor = off }, keys[k], rows[i].value, env, GDN_FROM_ENV);
            /* Absent: the file's value. */
            expect(&(input) { .vendor = on }, keys[k], "true", "t.ini:2", GDN_FROM_CONF);
            expect(&(input) { .vendor = off }, keys[k], "false", "t.ini:2", GDN_FROM_CONF);
        }
    }
}

static void test_presence(void **state) {
    (void)state;
    static const char *const texts[] = { "", "0", "false", "no", "1", "anything" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char kill[128], other[128];
        (void)snprintf(kill, sizeof kill, "METRALE_NO_GDN_PREFILL_TC=%s", texts[i]);
        (void)snprintf(other, sizeof other, "METRALE_NO_GDN_FWD_O_MMA8=%s", texts[i]);
        const char *file = "[defaults]\ngdn_prefill_tc = true\n";
        /* Set at all: on, and it outranks the file and the toggle's own variable ... */
        const input both = { .vars = { kill, "METRALE_GDN_PREFILL_TC=1" }, .vendor = file };
        expect(&both, "gdn_no_prefill_tc", "true", "METRALE_NO_GDN_PREFILL_TC", GDN_FROM_ENV);
        expect(&both, "gdn_prefill_tc", "false", "METRALE_NO_GDN_PREFILL_TC", GDN_FROM_ENV);
        expect(&(input) { .vars = { kill }, .vendor = file }, "gdn_prefill_tc", "false", "METRALE_NO_GDN_PREFILL_TC", GDN_FROM_ENV);
        /* ... but not the API, by either name. */
        expect(&(input) { .vars = { kill }, .settings = { { "gdn_prefill_tc", "true" } } }, "gdn_prefill_tc", "true", "api", GDN_FROM_API);
        expect(&(input) { .vars = { kill }, .settings = { { "gdn_prefill_tc", "true" } } }, "gdn_no_prefill_tc", "false", "api",
               GDN_FROM_API);
        expect(&(input) { .vars = { kill }, .settings = { { "gdn_prefill_tc", "false" } } }, "gdn_no_prefill_tc", "true", NULL,
               GDN_FROM_ENV);
        expect(&(input) { .vars = { kill }, .vendor = file, .settings = { { "gdn_no_prefill_tc", "false" } } }, "gdn_prefill_tc", "true",
               "t.ini:2", GDN_FROM_CONF);
        expect(&(input) { .vars = { other } }, "gdn_no_fwd_o_mma8", "true", "METRALE_NO_GDN_FWD_O_MMA8", GDN_FROM_ENV);
        expect(&(input) { .vars = { other, "METRALE_GDN_PREFILL_TC=1" } }, "gdn_prefill_tc", "true", NULL, -1);
    }
    expect(&(input) { .settings = { { "gdn_prefill_tc", "true" }, { "gdn_no_prefill_tc", "true" } } }, "gdn_prefill_tc", "true", "api",
           GDN_FROM_API);
    expect(&(input) { .vendor = "[defaults]\ngdn_prefill_tc=true\n", .settings = { { "gdn_no_prefill_tc", "true" } } }, "gdn_prefill_tc",
           "false", "api", GDN_FROM_API);
}

/* The pinned rows of the scalar spine: the strings arrive byte for byte. */
static void test_exact(void **state) {
    (void)state;
    static const char *const rows[][2] = { { NULL, NULL }, { "1", NULL },      { "1", "1" },    { NULL, "1" }, { "0", "1" },
                                           { "0", NULL },  { "0", "0" },       { "yes", NULL }, { NULL, "0" }, { "", NULL },
                                           { " 1", NULL }, { "true", "true" }, { "0", "yes" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char pipe[64], vtile[64];
        input in = { .vars = { NULL } };
        int n = 0;
        (void)snprintf(pipe, sizeof pipe, "METRALE_GDN_PIPE=%s", rows[i][0] ? rows[i][0] : "");
        (void)snprintf(vtile, sizeof vtile, "METRALE_GDN_VTILE=%s", rows[i][1] ? rows[i][1] : "");
        if (rows[i][0]) in.vars[n++] = pipe;
        if (rows[i][1]) in.vars[n++] = vtile;
        expect(&in, "gdn_pipe", rows[i][0], rows[i][0] ? "METRALE_GDN_PIPE" : "built in", -1);
        expect(&in, "gdn_vtile", rows[i][1], rows[i][1] ? "METRALE_GDN_VTILE" : "built in", -1);
        in.settings[0] = (gdn_setting) { "gdn_pipe", " 1" };
        expect(&in, "gdn_pipe", " 1", "api", GDN_FROM_API);
    }
    /* gdn_woa: only 1 is on. */
    static const char *const woa[][2] = { { "1", "1" },  { "0", "0" },    { "", "0" },   { " 1", "0" },
                                          { "1 ", "0" }, { "true", "0" }, { "01", "0" }, { "on", "0" } };
    for (size_t i = 0; i < sizeof woa / sizeof *woa; i++) {
        char var[64];
        (void)snprintf(var, sizeof var, "METRALE_GDN_WOA=%s", woa[i][0]);
        expect(&(input) { .vars = { var }, .vendor = "[defaults]\ngdn_woa = 1\n" }, "gdn_woa", woa[i][1], "METRALE_GDN_WOA", GDN_FROM_ENV);
    }
    expect(&(input) { .vendor = "[defaults]\ngdn_woa = 1\n" }, "gdn_woa", "1", "t.ini:2", GDN_FROM_CONF);
}

static void test_strict(void **state) {
    (void)state;
    static const struct {
        const char *key, *env, *good[5], *expected, *bad[8];
    } rows[] = {
        { "w4a4_mx_nt", "METRALE_W4A4_MX_NT", { "4", "1" }, "1 or 4", { "2", "0", " 4", "4 ", "04", "yes", "-1", "14" } },
        { "w4a4_mx_ps", "METRALE_W4A4_MX_PS", { "1", "0" }, "0 or 1", { "2", "true", " 1", "1 ", "01", "off", "-1", "10" } },
        { "cpu_isa",
          "GDN_CPU_ISA",
          { "auto", "base", "avx2", "avx512" },
          "auto, base, avx2 or avx512",
          { "AVX2", "avx", " base", "avx2 ", "sse", "1", "none", "auto|base" } },
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char var[96], text[160];
        (void)snprintf(var, sizeof var, "%s=", rows[k].env);
        expect(&(input) { .vars = { var } }, rows[k].key, rows[k].good[0], "built in", GDN_FROM_BUILTIN); /* empty: as unset */
        expect(&(input) { .vars = { NULL } }, rows[k].key, rows[k].good[0], "built in", GDN_FROM_BUILTIN);
        for (int i = 0; i < 5 && rows[k].good[i]; i++) {
            (void)snprintf(var, sizeof var, "%s=%s", rows[k].env, rows[k].good[i]);
            expect(&(input) { .vars = { var } }, rows[k].key, rows[k].good[i], rows[k].env, GDN_FROM_ENV);
        }
        for (int i = 0; i < 8; i++) {
            (void)snprintf(var, sizeof var, "%s=%s", rows[k].env, rows[k].bad[i]);
            (void)snprintf(text, sizeof text, "%s: expected %s", var, rows[k].expected);
            expect_error(&(input) { .vars = { var } }, GDN_E_LEVER, text);
        }
    }
}

static void test_older_name(void **state) {
    (void)state;
    const char *key = "ssm_ba_gates_hopper", *newer = "METRALE_SSM_BA_GATES_HOPPER", *older = "ATLAS_SSM_BA_GATES_HOPPER";
    expect(&(input) { .vars = { "ATLAS_SSM_BA_GATES_HOPPER=1" } }, key, "true", older, GDN_FROM_ENV);
    expect(&(input) { .vars = { "ATLAS_SSM_BA_GATES_HOPPER=0" }, .vendor = "[defaults]\nssm_ba_gates_hopper=true\n" }, key, "false", older,
           GDN_FROM_ENV);
    static const struct {
        const char *a, *b, *value;
        unsigned warnings;
    } rows[] = { { "METRALE_SSM_BA_GATES_HOPPER=1", "ATLAS_SSM_BA_GATES_HOPPER=0", "true", 1 },
                 { "METRALE_SSM_BA_GATES_HOPPER=off", "ATLAS_SSM_BA_GATES_HOPPER=1", "false", 1 },
                 { "METRALE_SSM_BA_GATES_HOPPER=1", "ATLAS_SSM_BA_GATES_HOPPER=yes", "true", 0 },
                 { "METRALE_SSM_BA_GATES_HOPPER=0", "ATLAS_SSM_BA_GATES_HOPPER=No", "false", 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gdn_lever_set *set = NULL;
        heard h;
        const input in = { .vars = { rows[i].b, rows[i].a } };
        assert_int_equal(resolve(&in, GDN_LOG_WARN, &h, &set, NULL), GDN_OK);
        assert_string_equal(set->at[GDN__L_BA_HOPPER].value, rows[i].value);
        assert_string_equal(set->at[GDN__L_BA_HOPPER].where, newer);
        assert_int_equal(h.warnings, rows[i].warnings);
        if (rows[i].warnings) {
            assert_contains(h.text, rows[i].a);
            assert_contains(h.text, rows[i].b);
        }
        gdn_levers_free(set);
    }
}

/* B182, B185: built in < file < stronger file < environment < API, and one parse for all. */
static void test_precedence(void **state) {
    (void)state;
    const char *vendor = "[defaults]\nw4a4_mx_nt = 1\n", *local = "; c\n[defaults]\nw4a4_mx_nt = 4\n";
    expect(&(input) { .vendor = vendor }, "w4a4_mx_nt", "1", "t.ini:2", GDN_FROM_CONF);
    expect(&(input) { .vendor = vendor, .local = local }, "w4a4_mx_nt", "4", "local.ini:3", GDN_FROM_CONF);
    expect(&(input) { .vendor = local, .local = local, .vars = { "METRALE_W4A4_MX_NT=1" } }, "w4a4_mx_nt", "1", "METRALE_W4A4_MX_NT",
           GDN_FROM_ENV);
    expect(&(input) { .vendor = local, .local = local, .vars = { "METRALE_W4A4_MX_NT=4" }, .settings = { { "w4a4_mx_nt", "1" } } },
           "w4a4_mx_nt", "1", "api", GDN_FROM_API);
    /* environment 1 with file 0, and the reverse */
    expect(&(input) { .vendor = "[defaults]\nw4a4_mx_ps = 0\n", .vars = { "METRALE_W4A4_MX_PS=1" } }, "w4a4_mx_ps", "1",
           "METRALE_W4A4_MX_PS", -1);
    expect(&(input) { .vendor = "[defaults]\nw4a4_mx_ps = 1\n", .vars = { "METRALE_W4A4_MX_PS=0" } }, "w4a4_mx_ps", "0",
           "METRALE_W4A4_MX_PS", -1);
    /* empty is as unset: the file's value stays */
    expect(&(input) { .vendor = vendor, .vars = { "METRALE_W4A4_MX_NT=" } }, "w4a4_mx_nt", "1", "t.ini:2", GDN_FROM_CONF);

    /* What was overridden is told at level debug, and only there. */
    gdn_lever_set *set = NULL;
    heard h;
    const input in = { .vendor = vendor, .local = local, .vars = { "METRALE_W4A4_MX_NT=1" } };
    assert_int_equal(resolve(&in, GDN_LOG_DEBUG, &h, &set, NULL), GDN_OK);
    assert_contains(h.text, "levers: w4a4_mx_nt: 1 (t.ini:2) is overridden by 4 (local.ini:3)");
    assert_contains(h.text, "levers: w4a4_mx_nt: 4 (local.ini:3) is overridden by 1 (METRALE_W4A4_MX_NT)");
    assert_int_equal(h.lines, 2);
    gdn_levers_free(set);
    assert_int_equal(resolve(&in, GDN_LOG_INFO, &h, &set, NULL), GDN_OK);
    assert_int_equal(h.lines, 0);
    gdn_levers_free(set);
}

static void test_api_errors(void **state) {
    (void)state;
    expect_error(&(input) { .settings = { { "gdn_prefil_tc", "true" } } }, GDN_E_LEVER,
                 "api: gdn_prefil_tc: unknown key; did you mean gdn_prefill_tc?");
    expect_error(&(input) { .settings = { { "zzz", "true" } } }, GDN_E_LEVER, "api: zzz: unknown key");
    expect_error(&(input) { .settings = { { "gdn_prefill_tc", "1" } } }, GDN_E_LEVER, "api: gdn_prefill_tc = 1: expected true or false");
    expect_error(&(input) { .settings = { { "w4a4_mx_nt", "" } } }, GDN_E_LEVER, "api: w4a4_mx_nt = : expected 1 or 4");
    expect_error(&(input) { .settings = { { "gdn_woa", "true" } } }, GDN_E_LEVER, "api: gdn_woa = true: expected 0 or 1");
    expect_error(&(input) { .settings = { { "gdn_woa", NULL } } }, GDN_E_ARG, "api: setting 0 has no value");
}

/* The program's own mistakes come first, and the meanings of the W4A4 levers are what the kernels do. */
static void test_order_and_meaning(void **state) {
    (void)state;
    expect_error(&(input) { .vars = { "METRALE_W4A4_MX_NT=3" }, .settings = { { "zzz", "1" } } }, GDN_E_LEVER, "api: zzz: unknown key");
    expect_error(&(input) { .vars = { "METRALE_W4A4_MX_NT=3" }, .settings = { { "gdn_pipe", "1" } } }, GDN_E_LEVER,
                 "METRALE_W4A4_MX_NT=3: expected 1 or 4");
    assert_string_equal(gdn__lever_defs[GDN__L_MX_NT].meaning, "W4A4 GEMV: 4 lets one CTA take 2 or 4 sixteen-row weight tiles, 1 one");
    assert_string_equal(gdn__lever_defs[GDN__L_MX_PS].meaning,
                        "W4A4 GEMV: 1 the persistent one (its grid is the number of SMs), 0 not that one");
}

static void test_reading(void **state) {
    (void)state;
    gdn_lever_set *set = NULL;
    heard h;
    struct {
        gdn_lever_info info;
        char canary;
    } out = { .canary = 'x' };
    assert_int_equal(resolve(&(input) { .vars = { NULL } }, GDN_LOG_INFO, &h, &set, NULL), GDN_OK);
    out.info.struct_size = 8; /* too small to hold a value */
    assert_int_equal(gdn_levers_at(set, 0, &out.info), GDN_E_ABI);
    out.info.struct_size = GDN_THROUGH(gdn_lever_info, value); /* an older caller */
    out.info.where = "untouched";
    assert_int_equal(gdn_levers_at(set, 0, &out.info), GDN_OK);
    assert_string_equal(out.info.where, "untouched");
    assert_int_equal(out.info.struct_size, GDN_THROUGH(gdn_lever_info, value));
    out.info.struct_size = 4096; /* a newer one */
    assert_int_equal(gdn_levers_at(set, 0, &out.info), GDN_OK);
    assert_int_equal(out.info.struct_size, sizeof out.info);
    assert_int_equal(out.canary, 'x');
    assert_int_equal(gdn_levers_at(set, GDN__LEVERS, &out.info), GDN_ABSENT);
    assert_int_equal(gdn_levers_at(set, UINT32_MAX, &out.info), GDN_ABSENT);
    assert_int_equal(gdn_levers_at(NULL, 0, &out.info), GDN_E_ARG);
    assert_int_equal(gdn_levers_at(set, 0, NULL), GDN_E_ARG);
    gdn_levers_free(set);
    gdn_levers_free(NULL);
}

/* The environment counts as it was at the first open of the process. */
static int read_twice(void) {
    gdn_lever_set *a = NULL, *b = NULL;
    reason r;
    if (setenv("METRALE_GDN_PIPE", "first", 1) || gdn_levers_read(NULL, "cpu", &a, reason_of(&r)) != GDN_OK) return 1;
    if (setenv("METRALE_GDN_PIPE", "second", 1) || setenv("METRALE_W4A4_MX_NT", "bad", 1)) return 2;
    if (gdn_levers_read(NULL, "hopper", &b, reason_of(&r)) != GDN_OK) return 3;
    if (*r.buf) return 5; /* success leaves no text */
    const int same = !strcmp(a->at[GDN__L_PIPE].value, "first") && !strcmp(b->at[GDN__L_PIPE].value, "first");
    gdn_levers_free(a);
    gdn_levers_free(b);
    return same ? 0 : 4;
}

static int read_bad(void) {
    gdn_lever_set *a = NULL;
    reason r;
    if (setenv("METRALE_W4A4_MX_PS", "x", 1) || gdn_levers_read(NULL, "gb10", &a, reason_of(&r)) != GDN_E_LEVER || a) return 1;
    return strcmp(r.buf, "METRALE_W4A4_MX_PS=x: expected 0 or 1") ? 2 : 0;
}

static void test_environment_once(void **state) {
    (void)state;
    assert_int_equal(in_child(read_twice), 0);
    assert_int_equal(in_child(read_bad), 0);
}

/* Every allocation failed in turn: NOMEM, no set, and (in the sanitizer build) no leak. */
static void test_no_memory(void **state) {
    (void)state;
    const input in = { .vendor = "[defaults]\ngdn_pipe = 1\n",
                       .vars = { "METRALE_GDN_PIPE=0", "METRALE_NO_GDN_PREFILL_TC=" },
                       .settings = { { "gdn_woa", "1" } } };
    char *vars[] = { strdup(in.vars[0]), strdup(in.vars[1]), NULL };
    gdn__env env;
    gdn__ini file = { .path = NULL };
    heard h;
    const gdn__log log = log_to(&h, GDN_LOG_INFO);
    assert_int_equal(gdn__ini_parse("t.ini", in.vendor, strlen(in.vendor), &file, NULL), GDN_OK);
    assert_int_equal(gdn__env_capture(&env, vars, false), GDN_OK);
    const gdn__conf conf = { .file = { &file }, .label = { "t.ini" }, .n = 1 };
    int failures = 0;
    for (int32_t n = 0;; n++) {
        gdn_lever_set *set = NULL;
        atomic_store(&gdn__alloc_fail_in, n);
        const gdn_status st = gdn__levers_resolve(&env, &conf, in.settings, 1, &log, &set, NULL);
        const bool reached = atomic_exchange(&gdn__alloc_fail_in, -1) < 0;
        if (!reached) {
            assert_int_equal(st, GDN_OK);
            gdn_levers_free(set);
            break;
        }
        assert_int_equal(st, GDN_E_NOMEM);
        assert_null(set);
        failures++;
    }
    assert_true(failures > 20);
    gdn__env_drop(&env);
    free(file.value[GDN__L_PIPE]);
    free(vars[0]);
    free(vars[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_the_list),
        cmocka_unit_test(test_shipped_files),
        cmocka_unit_test(test_document),
        cmocka_unit_test(test_toggle),
        cmocka_unit_test(test_presence),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_strict),
        cmocka_unit_test(test_older_name),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_api_errors),
        cmocka_unit_test(test_order_and_meaning),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_environment_once),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("levers", tests, NULL, NULL) != 0;
}
