/* test_cli.c - the gdn command: exit codes, where errors go, targets, levers and route, in text and JSON. */
#include "host_test.h"

#include <jansson.h>
#include <unistd.h>

static char out[65536];

/* Runs `gdn <args>` with both streams joined or stdout alone, in an environment of its own; answers the exit code. */
static int run(const char *env, const char *args, const char *streams) {
    char command[2048];
    (void)snprintf(command, sizeof command, "env -u GDN_TARGET -u GDN_CONF -u GDN_LOG GDN_PLUGIN_PATH='%s' %s '%s/bin/gdn' %s %s",
                   GDN_PLUGIN_DIR, env, GDN_BINARY_DIR, args, streams);
    FILE *f = popen(command, "re");
    assert_non_null(f);
    const size_t n = fread(out, 1, sizeof out - 1, f);
    out[n] = '\0';
    const int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect(const char *env, const char *args, int code, const char *part) {
    const int got = run(env, args, "2>&1");
    if (got != code) fail_msg("gdn %s: exit code %d, expected %d: %s", args, got, code, out);
    if (!strstr(out, part)) fail_msg("gdn %s: '%s' is not in: %s", args, part, out);
}

static void test_front(void **state) {
    (void)state;
    expect("", "", 2, "usage: gdn COMMAND");
    expect("", "--help", 0, "levers     every lever");
    expect("", "--version", 0, "gdn 0.1.0, plugin ABI 0.4");
    expect("", "--version now", 2, "gdn: --version takes --json and nothing else, not 'now'");
    expect("", "targest", 2, "gdn: 'targest' is no command; did you mean targets?");
    expect("", "zzzzzzzz", 2, "gdn: 'zzzzzzzz' is no command (");
    static const char *const commands[] = { "targets", "levers", "route" };
    for (size_t i = 0; i < 3; i++) {
        char args[64], said[64];
        (void)snprintf(args, sizeof args, "%s --help", commands[i]);
        (void)snprintf(said, sizeof said, "usage: gdn %s", commands[i]);
        expect("", args, 0, said);
        (void)snprintf(args, sizeof args, "%s --nonsense", commands[i]);
        (void)snprintf(said, sizeof said, "gdn %s: unrecognized option '--nonsense'", commands[i]);
        expect("", args, 2, said);
        (void)snprintf(args, sizeof args, "%s --log loud", commands[i]);
        expect("", args, 2, "--log loud: expected error, warn, info or debug");
        (void)snprintf(args, sizeof args, "%s --set x", commands[i]);
        expect("", args, 2, "--set x: expected KEY=VALUE");
        (void)snprintf(args, sizeof args, "%s --target ''", commands[i]);
        expect("", args, 2, "--target: is empty");
        (void)snprintf(args, sizeof args, "%s --conf ''", commands[i]);
        expect("", args, 2, "--conf: is empty");
    }
    /* Nothing but the result on stdout; a result that could not be written is not a success. */
    assert_int_equal(run("", "levers --target nowhere", "2>/dev/null"), 1);
    assert_string_equal(out, "");
    assert_int_equal(run("", "levers", "2>/dev/null >/dev/full"), 1);
}

static json_t *parse(const char *args, int code) {
    json_error_t error;
    if (run("", args, "2>/dev/null") != code) fail_msg("gdn %s: %s", args, out);
    json_t *doc = json_loads(out, 0, &error);
    if (!doc) fail_msg("gdn %s: line %d: %s", args, error.line, error.text);
    assert_int_equal(json_integer_value(json_object_get(doc, "schema")), 1);
    return doc;
}

static const char *text(const json_t *row, const char *key) {
    const char *s = json_string_value(json_object_get(row, key));
    return s ? s : "";
}

static const json_t *row_of(const json_t *list, const char *key, const char *value) {
    size_t i;
    json_t *row;
    json_array_foreach(list, i, row) {
        if (!strcmp(text(row, key), value)) return row;
    }
    fail_msg("no row %s = %s", key, value);
    return NULL;
}

static void test_targets(void **state) {
    (void)state;
    expect("", "targets", 0, "hopper: target 'hopper' needs a GPU (sm_90a): ");
    expect("", "targets --target cpu", 0, "usable");
    expect("", "targets --target hopper", 1, "no CUDA driver");
    expect("", "targets --target ./nowhere.so", 1, "./nowhere.so: no such file");
    expect("", "targets --target nowhere", 1, "nowhere: target 'nowhere' could not be opened");
    expect("", "targets --target CPU", 2, "gdn targets: --target: 'CPU' is no target name ([a-z0-9_], 1 to 32); a path has a slash");
    expect("GDN_PLUGIN_PATH=/nonexistent", "targets", 1, "cpu: target 'cpu' could not be opened");
    expect("", "targets --target '" FIXTURES "/libgdn_major1.so'", 1, "plugin ABI 1.4, host 0.4");
    json_t *doc = parse("targets --json", 0);
    const json_t *cpu = row_of(json_object_get(doc, "targets"), "target", "cpu"),
                 *gb10 = row_of(json_object_get(doc, "targets"), "target", "gb10");
    assert_true(json_is_true(json_object_get(cpu, "usable")));
    assert_string_equal(text(cpu, "abi"), "0.4");
    assert_int_equal(strlen(text(cpu, "build_id")), 16);
    assert_false(json_is_true(json_object_get(gb10, "usable")));
    assert_string_equal(text(gb10, "status"), "GDN_E_NODRIVER");
    assert_contains(text(gb10, "reason"), "no CUDA driver");
    json_decref(doc);
}

static void test_levers(void **state) {
    (void)state;
    expect("METRALE_GDN_PIPE=' 1'", "levers --target hopper", 0, "gdn_pipe             \" 1\"       env       METRALE_GDN_PIPE");
    expect("METRALE_GDN_PREFILL_TC=0", "levers --target hopper", 0, "    was true (hopper.ini:");
    expect("METRALE_W4A4_MX_NT=2", "levers", 1, "gdn levers: METRALE_W4A4_MX_NT=2: expected 1 or 4\n");
    expect("METRALE_GDN_PIEP=1 METRALE_OTHER=1", "levers", 0,
           "METRALE_GDN_PIEP is set but nothing reads it; did you mean METRALE_GDN_PIPE?");
    assert_null(strstr(out, "METRALE_OTHER"));
    expect("", "levers --meaning", 0, "W4A4 GEMV: 1 the persistent one");
    expect("GDN_PLUGIN_PAHT=x", "levers", 0, "GDN_PLUGIN_PAHT is set but nothing reads it; did you mean GDN_PLUGIN_PATH?");
    expect("", "levers --meaning", 0, "METRALE_GDN_PREFILL_TC, toggle; built in: false");
    json_t *doc = parse("levers --json --target cpu --set w4a4_mx_nt=1", 0);
    const json_t *nt = row_of(json_object_get(doc, "levers"), "key", "w4a4_mx_nt");
    assert_string_equal(text(nt, "value"), "1");
    assert_string_equal(text(nt, "place"), "api");
    assert_int_equal(json_array_size(json_object_get(nt, "overridden")), 1);
    assert_int_equal(json_array_size(json_object_get(doc, "levers")), GDN__LEVERS);
    json_decref(doc);
}

/* What the command line itself has wrong is exit code 2, in its own words; what is wrong elsewhere 1. GDN_LOG and GDN_CACHE_MAX_MIB
 * that say nothing are told and decide nothing. */
static void test_faults(void **state) {
    (void)state;
    static const char *const commands[] = { "levers", "targets", "route flag_clear", "bench", "check" };
    char conf[64], broken[96], args[160], said[192];
    (void)snprintf(broken, sizeof broken, "%s/cpu.ini", make_folder(conf));
    write_file(broken, "gdn_woa = 1\n", 12);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        (void)snprintf(args, sizeof args, "%s --target cpu --set gdn_wao=1", commands[i]);
        expect("", args, 2, "--set gdn_wao: unknown key; did you mean gdn_woa?");
        expect("METRALE_W4A4_MX_NT=3", args, 2, "--set gdn_wao: unknown key"); /* the nearer fault first */
        (void)snprintf(args, sizeof args, "%s --target cpu --set w4a4_mx_nt=3", commands[i]);
        expect("", args, 2, "--set w4a4_mx_nt = 3: expected 1 or 4");
        (void)snprintf(args, sizeof args, "%s --target cpu --conf /nonexistent.ini", commands[i]);
        expect("", args, 2, "--conf /nonexistent.ini: no such file");
        (void)snprintf(args, sizeof args, "%s --target cpu --conf %s", commands[i], broken);
        (void)snprintf(said, sizeof said, "--conf %s:1: gdn_woa: a key outside a section", broken);
        expect("", args, 2, said);
        (void)snprintf(args, sizeof args, "%s --target cpu", commands[i]);
        expect("METRALE_W4A4_MX_NT=3", args, 1, "METRALE_W4A4_MX_NT=3: expected 1 or 4");
        expect("GDN_CPU_ISA=sse", args, 1, "GDN_CPU_ISA=sse: expected auto, base, avx2 or avx512");
        expect("GDN_CONF=/nonexistent.ini", args, 1, "GDN_CONF=/nonexistent.ini: no such file");
        (void)snprintf(said, sizeof said, "GDN_CONF_DIR=%s", conf);
        expect(said, args, 1, "cpu.ini:1: gdn_woa: a key outside a section");
    }
    assert_int_equal(unlink(broken), 0);
    assert_int_equal(rmdir(conf), 0);
    expect("", "route flag_clear --target 'A b'", 2, "--target: 'A b' is no target name");
    expect("GDN_TARGET='A b'", "route flag_clear", 1, "'A b' is no target name");
    expect("", "route flag_clear --target nowhere", 1, "target 'nowhere' could not be opened");
    expect("GDN_LOG=loud", "route flag_clear", 0, "GDN_LOG=loud: expected error, warn, info or debug");
    assert_null(strstr(out, "[info]")); /* the default level of the command, as without GDN_LOG */
    expect("GDN_LOG=info", "route flag_clear", 0, "[info]");
    expect("", "cache list extra", 2, "gdn cache: 'extra': list takes no argument but options");
    expect("", "cache list --set gdn_woa=1", 2, "gdn cache: --set: not for this command: a cache is of all targets and levers");
    expect("", "cache list --target hopper", 2, "gdn cache: --target: not for this command");
    expect("", "compile --arch sm_90a --out /tmp/gdn-none-yet --conf x.ini", 2, "gdn compile: --conf: not for this command: levers choose");
    expect("", "cache lists", 2, "expected one of list, verify, prune, not 'lists'");
    expect("GDN_CACHE_MAX_MIB=foo", "cache list", 0, "GDN_CACHE_MAX_MIB=foo: expected a whole number from 1 to 1048576");
    expect("GDN_CACHE_MAX_MIB=8", "cache list", 0, " of 8 MiB");
    expect("GDN_CACHE_DIR=/tmp/gdn-none-yet", "cache list", 0, "/tmp/gdn-none-yet/v1: 0 modules"); /* and stays not there */
    expect("GDN_CACHE_DIR=/tmp/gdn-none-yet", "cache verify", 0, ": 0 modules");
    expect("GDN_CACHE_DIR=/tmp/gdn-none-yet", "cache prune", 0, ": 0 removed");
    assert_int_not_equal(access("/tmp/gdn-none-yet", F_OK), 0);
    expect("GDN_CACHE_DIR=/tmp/gdn-none-yet/deeper", "cache list", 1, "no cache: "); /* its parent is not there either */
    assert_null(strstr(out, "expected"));
    expect("GDN_CACHE_DRI=/x", "cache list", 0, "GDN_CACHE_DRI is set but nothing reads it; did you mean GDN_CACHE_DIR?");
}

/* A quoted value can neither look like a message of its own nor steer the terminal, and a path that is too long is named as that. */
static void test_quoted_values(void **state) {
    (void)state;
    expect("", "route \"$(printf 'x\\ngdn: all is well')\"", 2, "x\n    gdn: all is well");
    expect("", "route \"$(printf 'x\\033[2Jy')\"", 2, "x\\x1b[2Jy");
    expect("", "levers --set \"$(printf 'a\\ngdn levers: done')=1\"", 2, "a\n    gdn levers: done: unknown key");
    expect("", "targets --conf \"$(printf '%05000d' 0)\"", 2, "gdn targets: --conf: 5000 bytes; a path has at most 4095");
    expect("", "route flag_clear --target \"/$(printf '%05000d' 0)\"", 2, "--target: 5001 bytes; a path has at most 4095");
    expect("", "levers --target cpu --conf \"/$(printf '%0240d/' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)x.ini\"", 2, "x.ini: no such file");
    expect("", "route flag_clear --target \"/$(printf '%0240d/' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)x.so\"", 1, "x.so: no such file");
}

/* One document on stdout, whatever went wrong, and none on stdout without --json. */
static void test_json_failures(void **state) {
    (void)state;
    static const struct {
        const char *args;
        int code;
        const char *error;
    } rows[] = { { "targest --json", 2, "'targest' is no command; did you mean targets?" },
                 { "--version now --json", 2, "--version takes --json and nothing else" },
                 { "levers --json --set foo=1", 2, "--set foo: unknown key" },
                 { "levers --set foo --json", 2, "--set foo: expected KEY=VALUE" },
                 { "levers --log loud --json", 2, "--log loud: expected error, warn, info or debug" },
                 { "route --nonsense --json", 2, "unrecognized or ambiguous option '--nonsense'" },
                 { "route --json --sm-count", 2, "an argument is missing for '--sm-count'" },
                 { "route --json=1", 2, NULL }, /* not --json */
                 { "route --json -x", 2, "option '-x'" },
                 { "route --json", 2, "which operation?" },
                 { "route decode --json nk=1 nk=2", 2, "'nk=2': nk was given before, as 'nk=1'" },
                 { "route flag_clear --json --target ./nowhere.so", 1, "plugin ./nowhere.so: no such file" },
                 { "cache --json", 2, "expected one of list, verify, prune" },
                 { "compile --json", 2, "--arch is missing" },
                 { "targets --json --target CPU", 2, "--target: 'CPU' is no target name" },
                 { "compile --arch bogus --out /tmp --json", 2, "--arch: architecture 'bogus': expected sm_<number>" },
                 { "generate --json", 2, "--model is missing" },
                 { "generate --json --graph maybe", 2, "--graph 'maybe' is not on or off" },
                 { "generate --json --model m --prompt p --held t", 2, "--held is the text of --w4a4, which is missing" },
                 { "bench --json --set foo=1", 2, "--set foo: unknown key" },
                 { "check --json extra", 2, "unexpected argument 'extra'" },
                 { "check --json --conf /nonexistent.ini", 2, "--conf /nonexistent.ini: no such file" },
                 { "levers --conf /nonexistent.ini", 2, NULL },
                 { "levers --set \"$(printf 'a\\377')=1\" --json", 2, "--set a\\xff: unknown key" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].error) {
            assert_int_equal(run("", rows[i].args, "2>/dev/null"), rows[i].code);
            assert_string_equal(out, "");
            continue;
        }
        json_t *doc = parse(rows[i].args, rows[i].code);
        assert_int_equal(json_object_size(doc), 2);
        if (!strstr(text(doc, "error"), rows[i].error)) fail_msg("gdn %s: %s", rows[i].args, out);
        json_decref(doc);
        char line[32];
        (void)snprintf(line, sizeof line, "gdn%s", rows[i].args[0] == '-' ? ":" : "");
        run("", rows[i].args, "2>&1 >/dev/null");
        assert_contains(out, line); /* and the line on stderr */
    }
    json_t *doc = parse("targets --json --set foo=1", 2); /* its own document says it */
    assert_string_equal(text(row_of(json_object_get(doc, "targets"), "target", "cpu"), "reason"), "--set foo: unknown key");
    json_decref(doc);
}

/* Bytes that are no UTF-8 do not break a document. */
static void test_json_bytes(void **state) {
    (void)state;
    static const struct {
        const char *shell, *json;
    } rows[] = { { "\\303\\244", "\xc3\xa4" },
                 { "\\377", "\\xff" },
                 { "a\\303", "a\\xc3" },
                 { "\\300\\200", "\\xc0\\x80" },
                 { "\\355\\240\\200", "\\xed\\xa0\\x80" },
                 { "\\360\\237\\230\\200", "\xf0\x9f\x98\x80" },
                 { "\\364\\220\\200\\200", "\\xf4\\x90\\x80\\x80" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char args[256];
        (void)snprintf(args, sizeof args,
                       "levers --json --target cpu --set gdn_vtile=was --set gdn_pipe=\"$(printf '%s')\" --set gdn_pipe=x", rows[i].shell);
        json_t *doc = parse(args, 0);
        const json_t *row = row_of(json_object_get(doc, "levers"), "key", "gdn_pipe");
        const char *was = json_string_value(json_array_get(json_object_get(row, "overridden"), 0));
        assert_non_null(was);
        assert_int_equal(strncmp(was, rows[i].json, strlen(rows[i].json)), 0);
        json_decref(doc);
        (void)snprintf(args, sizeof args, "levers --json --target cpu --set gdn_pipe=\"$(printf '%s')\"", rows[i].shell);
        doc = parse(args, 0);
        assert_string_equal(text(row_of(json_object_get(doc, "levers"), "key", "gdn_pipe"), "value"), rows[i].json);
        json_decref(doc);
    }
}

#define NORM "route norm act_type=bf16 weight_type=bf16 dim=128 act=silu max_rows=64 eps=1e-6"
static void test_route(void **state) {
    (void)state;
    expect("", NORM, 0, "entry      gdn_cpu_");
    expect("", NORM " rows=8 --sm-count 132", 0, "status     GDN_OK");
    expect("", "route", 2, "which operation?");
    expect("", "route decoed", 2, "'decoed' is no operation; did you mean decode?");
    expect("", NORM " dims=3", 2, "norm has no field 'dims'; did you mean dim?");
    expect("", NORM " dim", 2, "'dim': expected FIELD=VALUE");
    expect("", NORM " dim=128", 2, "'dim=128': dim was given before, as 'dim=128'");
    expect("", NORM " rows=8 rows=9", 2, "'rows=9': rows was given before, as 'rows=8'");
    expect("", "route norm --fields dim=1", 2, "'dim=1': --fields lists fields and takes none");
    expect("", "route norm act=relu", 2, "act=relu: expected a number or silu, sigmoid");
    expect("", NORM " rows=-1", 2, "rows: '-1' is not a whole number from 0 to 4294967295");
    expect("", "route norm dim=4294967296", 2, "dim: '4294967296' is not a whole number");
    expect("", "route norm eps=x", 2, "eps: 'x' is not a finite number");
    expect("", "route norm eps=nan", 2, "eps: 'nan' is not a finite number");
    expect("", NORM " --sm-count 0", 2, "--sm-count: '0' is not a whole number from 1");
    expect("", "route verify rows=4", 2, "batch is missing");
    expect("", "route round --fields", 0, "  k_rows (optional)");
    expect("",
           "route round act_type=bf16 state_type=f32 nk=2 nv=4 k_dim=128 v_dim=128 gate_form=linear state_addr=pool max_rows=4 max_batch=1 "
           "stash_seqs=1 --set gdn_woa=1 rows=4 batch=1",
           0, "guard      -");                          /* k_rows may be left out */
    expect("", "route prefill nk=2", 2, "gdn route: "); /* the plugin names what is not set */
    expect("", "route verify --fields", 0, "  state_addr         u32  contiguous=0, pool=1, table=2");
    expect("", "route fold --fields", 0, "  k_rows");
    json_t *fields = parse("route verify --fields --json", 0);
    const json_t *addr = row_of(json_object_get(fields, "fields"), "name", "state_addr");
    assert_string_equal(text(addr, "type"), "u32");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(addr, "words"), "table")), 2);
    assert_string_equal(text(row_of(json_object_get(fields, "fields"), "name", "scale"), "type"), "f32");
    assert_string_equal(text(row_of(json_object_get(fields, "fields"), "name", "num_slots"), "type"), "u64");
    assert_string_equal(json_string_value(json_array_get(json_object_get(fields, "counts"), 0)), "rows");
    json_decref(fields);
    json_t *version = parse("--version --json", 0);
    assert_string_equal(text(version, "version"), "0.1.0");
    assert_int_equal(json_integer_value(json_object_get(version, "abi_minor")), 4);
    json_decref(version);
    const char *woa =
        "route verify_woa act_type=bf16 state_type=f32 nk=2 nv=4 k_dim=128 v_dim=128 gate_form=linear state_addr=pool max_rows=4 max_batch=2 "
        "stash_seqs=2 --json";
    char args[512];
    json_t *doc = parse(woa, 1);
    assert_string_equal(text(doc, "guard"), "not requested");
    assert_string_equal(text(doc, "lever"), "gdn_woa");
    json_decref(doc);
    (void)snprintf(args, sizeof args, "%s --set gdn_woa=1", woa);
    doc = parse(args, 0);
    assert_string_equal(text(doc, "guard"), "");
    assert_string_equal(text(doc, "lever_place"), "api");
    json_decref(doc);
    const char *prefill =
        "route prefill --target hopper --set gdn_prefill_fast=true --set gdn_prefill_tc=true act_type=bf16 state_type=f32 "
        "nk=2 nv=4 k_dim=128 v_dim=128 gate_form=linear max_tokens=64 max_batch=1 qk_stride=260";
    (void)snprintf(args, sizeof args, "%s --json", prefill);
    doc = parse(args, 0);
    const json_t *declined = json_object_get(doc, "declined");
    assert_int_equal(json_array_size(declined), 2);
    assert_string_equal(text(json_array_get(declined, 0), "lever"), "gdn_prefill_fast");
    assert_string_equal(text(json_array_get(declined, 0), "guard"), "a stride of query, key or value is not a multiple of 8");
    assert_string_equal(text(json_array_get(declined, 1), "lever"), "gdn_prefill_tc");
    json_decref(doc);
    expect("", prefill, 0,
           "declined   gdn_prefill_fast: a stride of query, key or value is not a multiple of 8\n"
           "declined   gdn_prefill_tc: qk_stride is not a multiple of 8");
}

/* What four-bit codes cost is told in numbers; the small model's sizes all fit. */
static void test_w4a4(void **state) {
    (void)state;
    json_t *doc = parse("generate --target cpu --model " GDN_TEST_DATA "/jargon-tiny --prompt : --n 1 --w4a4 --json", 0);
    const json_t *w = json_object_get(doc, "w4a4"), *projections = json_object_get(w, "projections");
    const double before = json_number_value(json_object_get(w, "perplexity_before")),
                 after = json_number_value(json_object_get(w, "perplexity_after"));
    assert_true(json_integer_value(json_object_get(w, "held_tokens")) > 500);
    assert_true(before > 1 && before < 256 && after > before && after < 2 * before);
    assert_int_equal(json_array_size(projections), 4);
    for (size_t i = 0; i < 4; i++) assert_true(json_is_true(json_object_get(json_array_get(projections, i), "nvfp4")));
    json_decref(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_front),         cmocka_unit_test(test_targets),
                                        cmocka_unit_test(test_quoted_values), cmocka_unit_test(test_levers),
                                        cmocka_unit_test(test_route),         cmocka_unit_test(test_faults),
                                        cmocka_unit_test(test_json_failures), cmocka_unit_test(test_json_bytes),
                                        cmocka_unit_test(test_w4a4) };
    return cmocka_run_group_tests_name("cli", tests, NULL, NULL) != 0;
}
