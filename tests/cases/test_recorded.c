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

/* The smallest layer with one metadata value changed (NULL: removed), or one tensor renamed. */
static void save_metadata(const char *key, const char *value, const char *tensor, const char *renamed) {
    size_t n = 0;
    unsigned char *bytes = copy_layer(&n);
    uint64_t length = 0;
    memcpy(&length, bytes, 8);
    json_t *header = json_loadb((const char *)bytes + 8, length, 0, NULL), *meta = json_object_get(header, "__metadata__");
    assert_non_null(meta);
    if (key && value) assert_int_equal(json_object_set_new(meta, key, json_string(value)), 0);
    if (key && !value) assert_int_equal(json_object_del(meta, key), 0);
    if (tensor) {
        assert_int_equal(json_object_set(header, renamed, json_object_get(header, tensor)), 0);
        assert_int_equal(json_object_del(header, tensor), 0);
    }
    char *text = json_dumps(header, JSON_COMPACT);
    assert_non_null(text);
    const uint64_t now = strlen(text), data = n - 8 - length;
    unsigned char *all = malloc(8 + now + data);
    assert_non_null(all);
    memcpy(all, &now, 8);
    memcpy(all + 8, text, now);
    memcpy(all + 8 + now, bytes + 8 + length, data);
    save(all, 8 + now + data);
    free(all);
    free(text);
    json_decref(header);
    free(bytes);
}

static void golden_metadata(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *part;
    } rows[] = {
        { "l2norm_eps", NULL, "metadata has no l2norm_eps" },
        { "l2norm_eps", "1e-5", "metadata l2norm_eps is '1e-5', must be 1e-06" },
        { "l2norm_eps", "garbage", "metadata l2norm_eps is 'garbage', must be 1e-06" },
        { "l2norm_eps", "1e-6x", "metadata l2norm_eps is '1e-6x', must be" },
        { "rms_eps", NULL, "metadata has no rms_eps" },
        { "rms_eps", "", "metadata rms_eps is '', must be 1e-12 to 0.1" },
        { "rms_eps", "nan", "metadata rms_eps is 'nan', must be" },
        { "rms_eps", "1,5e-6", "metadata rms_eps is '1,5e-6', must be" },
        { "rms_eps", "0", "metadata rms_eps is '0', must be" },
        { "rms_eps", "a\nb", "metadata rms_eps is 'a?b', must be" },
        { "decode_steps", NULL, "metadata has no decode_steps" },
        { "decode_steps", "2", "metadata decode_steps is 2, but there is a tensor 'decode2." },
        { "decode_steps", "0", "metadata decode_steps is 0, but there is a tensor 'decode0." },
        { "decode_steps", "4", "metadata decode_steps is 4, but tensor 'decode3.hidden' is missing" },
        { "decode_steps", "3 ", "metadata decode_steps is '3 ', must be 0 to 10000" },
        { "batch", "3", "tensor 'prefill.hidden' has shape [2,200,128], the metadata says [3,200,128]" },
        { "batch", "-2", "metadata batch is '-2', must be 1 to 1024" },
        { "prefill_tokens", "100", "tensor 'prefill.hidden' has shape [2,200,128], the metadata says [2,100,128]" },
        { "prefill_tokens", "1e2", "metadata prefill_tokens is '1e2', must be" },
        { "hidden", "136", "tensor 'prefill.hidden' has shape [2,200,128], the metadata says [2,200,136]" },
        { "num_k_heads", "0", "metadata num_k_heads is '0', must be 1 to 256" },
        { "num_k_heads", "1", "has shape [" },
        { "num_v_heads", "4", "has shape [" },
        { "head_dim", "96", "head_dim 64 or 128" },
        { "head_dim", "128", "has shape [" },
        { "model", "qwen3_next", "tensor 'weight.in_proj_a.weight' has no place in a recorded layer" },
        { "model", "llama", "metadata model is 'llama', must be qwen3_next or qwen3_5" },
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        save_metadata(rows[i].key, rows[i].value, NULL, NULL);
        one_line(RUN("check", "--golden", "changed.safetensors"), 1, rows[i].part);
    }
    static const char *const renamed[] = { "weight.foo", "prefil.hidden", "decode.q", "decode01.q", "decode1x.q", "decode1.q2", "foo" };
    for (size_t i = 0; i < N_OF(renamed); i++) {
        char part[120];
        (void)snprintf(part, sizeof part, "tensor '%s' has no place in a recorded layer", renamed[i]);
        save_metadata(NULL, NULL, "decode1.q", renamed[i]);
        one_line(RUN("check", "--golden", "changed.safetensors"), 1, part);
    }
    save_metadata("rms_eps", "0.1", NULL, NULL); /* in its range, and not what was recorded: the norm shows it */
    assert_int_equal(RUN("check", "--golden", "changed.safetensors"), 1);
    const char *norm = strstr(out, "norm_out");
    assert_non_null(norm);
    assert_non_null(strstr(norm, "ABOVE ITS BOUND"));
    save_metadata("source", "another", NULL, NULL); /* the control: what has no bearing is taken */
    assert_int_equal(RUN("check", "--golden", "changed.safetensors"), 0);
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
    one_line(RUN("check", "--golden", ""), 2, "gdn check: --golden is empty");
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
    one_line(RUN("check", "--model", model, "--replay", "changed.json"), 1, "case 4: top2_gap is not one number of 0 or more a token");
    save_replay(json_pack("{s:[]}", "cases"));
    one_line(RUN("check", "--model", model, "--replay", "changed.json"), 1, "changed.json: no case with dtype float32");
    save_replay(json_pack("{}"));
    one_line(RUN("check", "--model", model, "--replay", "changed.json"), 1, "changed.json: cases is missing or not an array");
    static const char *const kinds[] = { "float23", "f32", "", "a\nb" }; /* of a late case: it is said before any is run */
    static const char *const shown[] = { "'float23'", "'f32'", "''", "'a?b'" };
    for (size_t i = 0; i < N_OF(kinds); i++) {
        char part[120];
        doc = json_load_file(replay_file, 0, NULL);
        json_object_set_new(json_array_get(json_object_get(doc, "cases"), 7), "dtype", json_string(kinds[i]));
        save_replay(doc);
        (void)snprintf(part, sizeof part, "changed.json: case 7: dtype is %s, expected float32 or bfloat16", shown[i]);
        one_line(RUN("check", "--model", model, "--replay", "changed.json"), 1, part);
    }
    doc = json_load_file(replay_file, 0, NULL);
    json_object_del(json_array_get(json_object_get(doc, "cases"), 0), "dtype");
    save_replay(doc);
    one_line(RUN("check", "--model", model, "--replay", "changed.json"), 1, "case 0: dtype is missing or not a string");
    doc = json_load_file(replay_file, 0, NULL);
    json_array_set_new(json_object_get(f32_case(doc), "top2_gap"), 9, json_real(-1)); /* would excuse a mismatch */
    save_replay(doc);
    one_line(RUN("check", "--model", model, "--replay", "changed.json"), 1, "case 4: top2_gap is not one number of 0 or more a token");
    unlink("changed.json");
    one_line(RUN("check", "--model", "", "--replay", replay_file), 2, "gdn check: --model is empty");
    one_line(RUN("check", "--model", model, "--replay", ""), 2, "gdn check: --replay is empty");
    one_line(RUN("check", "--model", model, "--replay", "none.json"), 1, "none.json: No such file");
    one_line(RUN("check", "--model", "none", "--replay", replay_file), 1, "gdn check: none: No such file");
}

/* The first logits are judged: moved by more than their bound the answer is no, by less it is yes; left out, nothing is said. */
static void first_logits(void **state) {
    (void)state;
    static const struct {
        const char *dtype;
        size_t at;
        double by;
        int code;
    } rows[] = { { "f32", 4, 2e-3, 1 }, { "f32", 4, 5e-4, 0 }, { "bf16", 0, 1, 1 }, { "bf16", 0, 0.05, 0 } };
    for (size_t i = 0; i < N_OF(rows); i++) {
        json_t *doc = json_load_file(replay_file, 0, NULL), *one = json_array_get(json_object_get(doc, "cases"), rows[i].at);
        json_t *first = json_object_get(one, "first_logits");
        json_array_set_new(first, 3, json_real(json_number_value(json_array_get(first, 3)) + rows[i].by));
        save_replay(json_pack("{s:[O]}", "cases", one)); /* one case of one dtype */
        json_decref(doc);
        const int code = RUN("check", "--model", model, "--replay", "changed.json", "--dtype", rows[i].dtype);
        if (code != rows[i].code) fail_msg("%s by %g: exit %d: %s%s", rows[i].dtype, rows[i].by, code, out, err);
        assert_non_null(strstr(out, ": 1 case, decode "));
        one_line(RUN("check", "--model", model, "--replay", "changed.json", "--dtype", i < 2 ? "bf16" : "f32"), 1,
                 i < 2 ? "changed.json: no case with dtype bfloat16" : "changed.json: no case with dtype float32");
    }
    json_t *doc = json_load_file(replay_file, 0, NULL), *one = f32_case(doc);
    json_object_del(one, "first_logits");
    save_replay(json_pack("{s:[O]}", "cases", one));
    json_decref(doc);
    assert_int_equal(RUN("check", "--model", model, "--replay", "changed.json"), 0);
    assert_non_null(strstr(out, "first logits not recorded"));
    unlink("changed.json");
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
    one_line(RUN("generate", "--model", model, "--prompt-file", "no-such-prompt"), 1, "gdn generate: no-such-prompt: No such file");
    one_line(RUN("generate", "--model", model, "--prompt-file", model), 1, "jargon-tiny: not a regular file");
    one_line(RUN("generate", "--model", model, "--prompt-file", "/dev/null"), 1, "/dev/null: not a regular file");
    one_line(RUN("generate", "--model", model, "--prompt-file", ""), 2, "gdn generate: --prompt-file is empty");
    one_line(RUN("generate", "--model", "", "--prompt", "x"), 2, "gdn generate: --model is empty");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--n", ""), 2, "--n: '' is not a whole number");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--dtype", ""), 2, "--dtype '' is not f32 or bf16");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--temperature", ""), 2, "--temperature '' is not a number");
    one_line(RUN("generate", "--model", model, "--prompt", "x", "--speculate", ""), 2, "--speculate '' is not off, verify or woa");
    save("", 0);
    one_line(RUN("generate", "--model", model, "--prompt-file", "changed.safetensors"), 1, "changed.safetensors: the file is empty");
    unlink("changed.safetensors");
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
        cmocka_unit_test(golden_layers),   cmocka_unit_test(golden_controls), cmocka_unit_test(golden_bad_files),
        cmocka_unit_test(golden_metadata), cmocka_unit_test(first_logits),    cmocka_unit_test(replayed),
        cmocka_unit_test(replay_controls), cmocka_unit_test(generated),       cmocka_unit_test(generate_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
