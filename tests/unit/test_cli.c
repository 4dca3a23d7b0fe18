/* test_cli.c - the gdn command: exit codes, where errors go, targets, levers and route, in text and JSON. */
#include "host_test.h"

#include <jansson.h>

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
    expect("", "--version", 0, "gdn 0.1.0, plugin ABI 0.1");
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
    expect("GDN_PLUGIN_PATH=/nonexistent", "targets", 1, "cpu: target 'cpu' could not be opened");
    expect("", "targets --target '" FIXTURES "/libgdn_major1.so'", 1, "plugin ABI 1.1, host 0.1");
    json_t *doc = parse("targets --json", 0);
    const json_t *cpu = row_of(json_object_get(doc, "targets"), "target", "cpu"),
                 *gb10 = row_of(json_object_get(doc, "targets"), "target", "gb10");
    assert_true(json_is_true(json_object_get(cpu, "usable")));
    assert_string_equal(text(cpu, "abi"), "0.1");
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
    expect("", "levers --set gdn_wao=1", 1, "gdn levers: api: gdn_wao: unknown key; did you mean gdn_woa?");
    expect("", "levers --conf /nonexistent.ini", 1, "conf=/nonexistent.ini: no such file");
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

#define NORM "route norm act_type=bf16 weight_type=bf16 dim=128 act=silu max_rows=64 eps=1e-6"
static void test_route(void **state) {
    (void)state;
    expect("", NORM, 0, "entry      gdn_cpu_");
    expect("", NORM " rows=8 --sm-count 132", 0, "status     GDN_OK");
    expect("", "route", 2, "which operation?");
    expect("", "route decoed", 2, "'decoed' is no operation; did you mean decode?");
    expect("", NORM " dims=3", 2, "norm has no field 'dims'; did you mean dim?");
    expect("", NORM " dim", 2, "'dim': expected FIELD=VALUE");
    expect("", NORM " act=relu", 2, "act=relu: expected a number or silu, sigmoid");
    expect("", NORM " rows=-1", 2, "rows: '-1' is not a whole number from 0 to 4294967295");
    expect("", NORM " dim=4294967296", 2, "dim: '4294967296' is not a whole number");
    expect("", NORM " eps=x", 2, "eps: 'x' is not a finite number");
    expect("", NORM " eps=nan", 2, "eps: 'nan' is not a finite number");
    expect("", NORM " --sm-count 0", 2, "--sm-count: '0' is not a whole number from 1");
    expect("", "route verify rows=4", 2, "batch is missing");
    expect("", "route prefill nk=2", 2, "gdn route: "); /* the plugin names what is not set */
    expect("", "route verify --fields", 0, "  state_addr         u32  contiguous=0, pool=1, table=2");
    expect("", "route fold --fields", 0, "  k_rows");
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
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_front), cmocka_unit_test(test_targets), cmocka_unit_test(test_levers),
                                        cmocka_unit_test(test_route) };
    return cmocka_run_group_tests_name("cli", tests, NULL, NULL) != 0;
}
