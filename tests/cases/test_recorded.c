/* test_recorded.c - the command's recorded checks and `generate`, as a user runs them: output, one error line, exit code. */
#include "numeric.h"
#include "target.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char gdn_program[] = GDN_BINARY_DIR "/bin/gdn";
static const char model[] = GDN_TEST_DATA "/jargon-tiny";
static const char replay_file[] = GDN_TEST_DATA "/jargon-tiny/greedy.json";
static const char *const layers[] = {
    GDN_TEST_DATA "/golden/qwen3_5_h128_k2_v2_d64_t200_b2.safetensors",
    GDN_TEST_DATA "/golden/qwen3_5_h256_k2_v6_d128_t137_b1.safetensors",
    GDN_TEST_DATA "/golden/qwen3_next_h256_k2_v8_d128_t64_b1.safetensors",
};
static char out[1 << 17], err[1 << 14];

static void read_back(const char *name, char *buf, size_t cap) {
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    buf[fread(buf, 1, cap - 1, f)] = 0;
    fclose(f);
    unlink(name);
}

/* Runs the command with stdout and stderr in `out` and `err`; the exit code, or 1000 + signal. */
static int run(const char *const *args) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        char *argv[24] = { (char *)(uintptr_t)gdn_program };
        for (size_t i = 0; args[i] && i < 22; i++) argv[i + 1] = (char *)(uintptr_t)args[i];
        const int o = open("recorded.out", O_WRONLY | O_CREAT | O_TRUNC, 0600),
                  e = open("recorded.err", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (o < 0 || e < 0 || dup2(o, 1) < 0 || dup2(e, 2) < 0) _exit(99);
        execv(gdn_program, argv);
        _exit(98);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    read_back("recorded.out", out, sizeof out);
    read_back("recorded.err", err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
#define RUN(...) run((const char *const[]) { __VA_ARGS__, NULL })

/* One line on stderr with `part`, nothing on stdout, this exit code. */
static void one_line(int code, int want, const char *part) {
    const char *end = strchr(err, '\n');
    if (code != want || !end || end[1] || !strstr(err, part) || out[0])
        fail_msg("exit %d, stderr '%s', expected %d and '%s'", code, err, want, part);
}

static void golden_layers(void **state) {
    (void)state;
    static const char *const stages[] = {
        "conv_out",  "z",        "g (ba_gates)", "beta (ba_gates)",   "g (gates)",      "beta (gates)", "core_out",
        "state_out", "norm_out", "out",          "conv_state, moved", "conv_state, new"
    };
    for (size_t i = 0; i < N_OF(layers); i++)
        for (uint32_t half = 0; half < 2; half++) {
            const int code = RUN("check", "--target", "cpu", "--golden", layers[i], "--dtype", half ? "bf16" : "f32", "--json");
            if (code) fail_msg("%s: exit %d: %s", layers[i], code, err);
            json_t *doc = json_loads(out, 0, NULL);
            assert_non_null(doc);
            const json_t *results = json_object_get(doc, "results");
            for (size_t s = 0; s < N_OF(stages); s++) { /* every stage of the last decode step was compared */
                bool seen = false;
                for (size_t r = 0; r < json_array_size(results); r++) {
                    const json_t *row = json_array_get(results, r);
                    seen = seen || (!strcmp(json_string_value(json_object_get(row, "stage")), stages[s]) &&
                                    !strcmp(json_string_value(json_object_get(row, "call")), "decode2"));
                }
                if (!seen) fail_msg("%s: %s is not compared", layers[i], stages[s]);
            }
            json_decref(doc);
        }
}

/* A copy of the smallest layer, changed. */
static unsigned char *copy_layer(size_t *n) {
    FILE *f = fopen(layers[0], "rb");
    assert_non_null(f);
    unsigned char *bytes = malloc(4 << 20);
    assert_non_null(bytes);
    *n = fread(bytes, 1, 4 << 20, f);
    fclose(f);
    return bytes;
}

static void save(const void *bytes, size_t n) {
    FILE *f = fopen("changed.safetensors", "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The controls: each of these tensors scaled by 1.02 must put a stage above its bound. */
static void golden_controls(void **state) {
    (void)state;
    static const char *const names[] = {
        "weight.A_log", "weight.in_proj_qkv.weight", "weight.norm.weight", "weight.out_proj.weight", "weight.conv1d.weight",
        "prefill.v",    "decode1.state_in",          "decode2.beta",       "decode0.conv_state"
    };
    for (size_t i = 0; i < N_OF(names); i++) {
        size_t n = 0;
        unsigned char *bytes = copy_layer(&n);
        uint64_t length = 0;
        memcpy(&length, bytes, 8);
        json_t *header = json_loadb((const char *)bytes + 8, length, 0, NULL);
        const json_t *entry = json_object_get(header, names[i]), *offsets = json_object_get(entry, "data_offsets");
        assert_non_null(entry);
        const uint32_t type = strcmp(json_string_value(json_object_get(entry, "dtype")), "F32") ? GDN_BF16 : GDN_F32;
        const uint64_t lo = (uint64_t)json_integer_value(json_array_get(offsets, 0)),
                       hi = (uint64_t)json_integer_value(json_array_get(offsets, 1));
        unsigned char *data = bytes + 8 + length + lo;
        for (uint64_t k = 0; k < (hi - lo) / num_size(type); k++) num_put(data, type, k, 1.02 * num_get(data, type, k));
        save(bytes, n);
        const int code = RUN("check", "--target", "cpu", "--golden", "changed.safetensors");
        if (code != 1 || !strstr(out, "ABOVE ITS BOUND") || !strstr(out, "NOT ok"))
            fail_msg("%s changed: exit %d\n%s%s", names[i], code, out, err);
        json_decref(header);
        free(bytes);
    }
    unlink("changed.safetensors");
}

static void golden_bad_files(void **state) {
    (void)state;
    size_t n = 0;
    unsigned char *bytes = copy_layer(&n);
    save(bytes, n - 1);
    one_line(RUN("check", "--golden", "changed.safetensors"), 1, "changed.safetensors: tensor ");
    save(bytes, 100);
    one_line(RUN("check", "--golden", "changed.safetensors"), 1, "changed.safetensors: header length");
    free(bytes);
    unlink("changed.safetensors");
    one_line(RUN("check", "--golden", "none.safetensors"), 1, "gdn check: none.safetensors: No such file");
    one_line(RUN("check", "--golden", model), 1, "not a regular file");
    one_line(RUN("check", "--golden", replay_file), 1, "not a safetensors file?");
    one_line(RUN("check", "--golden", GDN_TEST_DATA "/jargon-tiny/model.safetensors"), 1, "metadata model is 'missing'");
}

static void replayed(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 2; half++) {
        const int code =
            RUN("check", "--target", "cpu", "--model", model, "--replay", replay_file, "--dtype", half ? "bf16" : "f32", "--json");
        if (code) fail_msg("exit %d: %s", code, err);
        json_t *doc = json_loads(out, 0, NULL);
        assert_non_null(doc);
        assert_int_equal(json_integer_value(json_object_get(doc, "steps")), 1024);
        assert_int_equal(json_array_size(json_object_get(doc, "cases")), 4);
        if (!half) assert_int_equal(json_integer_value(json_object_get(doc, "decode_mismatches")), 0);
        json_decref(doc);
    }
}

static void save_replay(json_t *doc) {
    assert_int_equal(json_dump_file(doc, "changed.json", 0), 0);
    json_decref(doc);
}

static json_t *f32_case(json_t *doc) {
    return json_array_get(json_object_get(doc, "cases"), 4);
}

static void replay_controls(void **state) {
    (void)state;
    json_t *doc = json_load_file(replay_file, 0, NULL); /* one recorded byte is another one */
    json_array_set_new(json_object_get(f32_case(doc), "tokens"), 200, json_integer('#'));
    save_replay(doc);
    assert_int_equal(RUN("check", "--model", model, "--replay", "changed.json"), 1);
    assert_non_null(strstr(out, "NOT ok"));
    doc = json_load_file(replay_file, 0, NULL);
    json_array_append_new(json_object_get(f32_case(doc), "tokens"), json_integer(256));
    save_replay(doc);
    one_line(RUN("check", "--model", model, "--replay", "changed.json"), 1,
             "changed.json: case 4: tokens is missing, empty or holds something");
    doc = json_load_file(replay_file, 0, NULL);
    json_object_del(f32_case(doc), "top2_gap");
    save_replay(doc);
    one_line(RUN("check", "--model", model, "--replay", "changed.json"), 1, "case 4: top2_gap is not one number a token");
    save_replay(json_pack("{s:[]}", "cases"));
    one_line(RUN("check", "--model", model, "--replay", "changed.json"), 1, "changed.json: no case with dtype float32");
    save_replay(json_pack("{}"));
    one_line(RUN("check", "--model", model, "--replay", "changed.json"), 1, "changed.json: cases is missing or not an array");
    unlink("changed.json");
    one_line(RUN("check", "--model", model, "--replay", "none.json"), 1, "none.json: No such file");
    one_line(RUN("check", "--model", "none", "--replay", replay_file), 1, "gdn check: none: No such file");
}

static void generated(void **state) {
    (void)state;
    static const char *const schemes[] = { "off", "verify", "woa" };
    static const char start[] = "swap}. See also {task";
    static char first[1 << 12];
    for (size_t i = 0; i < N_OF(schemes); i++) {
        const int code = RUN("generate", "--target", "cpu", "--model", model, "--prompt", ":recursion: n.\n\nSee {", "--n", "150",
                             "--speculate", schemes[i]);
        if (code) fail_msg("exit %d: %s", code, err);
        assert_int_equal(strlen(out), 150);
        assert_int_equal(strncmp(out, start, strlen(start)), 0);
        if (!i) strcpy(first, out);
        assert_string_equal(out, first);
        assert_non_null(strstr(err, "target cpu"));
        assert_non_null(strstr(err, "prefill"));
        if ((strstr(err, "verify_woa") != NULL) != (i == 2)) fail_msg("%s: routes: %s", schemes[i], err);
    }
}

static void generate_bad_input(void **state) {
    (void)state;
    one_line(RUN("generate", "--prompt", "x"), 2, "gdn generate: --model is missing");
    one_line(RUN("generate", "--model", model), 2, "give one of --prompt and --prompt-file");
    one_line(RUN("generate", "--model", model, "--prompt", ""), 2, "the prompt is empty");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--prompt-file", "y"), 2, "give one of --prompt and --prompt-file");
    one_line(RUN("generate", "--model", model, "--prompt-file", "no-such-prompt"), 2, "no-such-prompt: No such file");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--n", "0"), 2, "--n");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--n", "12x"), 2, "--n");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--dtype", "f16"), 2, "--dtype 'f16' is not f32 or bf16");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--temperature", "-1"), 2,
             "--temperature '-1' is not a number from 0 to 100");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--top-p", "0"), 2, "--top-p '0' is not a number");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--speculate", "yes"), 2, "--speculate 'yes' is not off, verify or woa");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "y"), 2, "'y' is not an option");
    one_line(RUN("generate", "--model", "none", "--prompt", "x"), 1, "gdn generate: none: No such file");
    one_line(RUN("generate", "--model", GDN_TEST_DATA "/golden", "--prompt", "x"), 1, "golden/config.json: No such file");
    assert_int_equal(RUN("generate", "--model", model, "--prompt", "x", "--wrong"), 2);
    assert_int_equal(RUN("generate", "--help"), 0);
    assert_non_null(strstr(out, "--speculate"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_layers),      cmocka_unit_test(golden_controls), cmocka_unit_test(golden_bad_files),
        cmocka_unit_test(replayed),           cmocka_unit_test(replay_controls), cmocka_unit_test(generated),
        cmocka_unit_test(generate_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
