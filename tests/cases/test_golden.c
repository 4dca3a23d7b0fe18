/* test_golden.c - `gdn check --golden`, a recorded layer through a target: right ones, changed ones, bad files. */
#include "command_run.h"

static const char *const layers[] = {
    GDN_TEST_DATA "/golden/qwen3_5_h128_k2_v2_d64_t200_b2.safetensors",
    GDN_TEST_DATA "/golden/qwen3_5_h256_k2_v6_d128_t137_b1.safetensors",
    GDN_TEST_DATA "/golden/qwen3_next_h256_k2_v8_d128_t64_b1.safetensors",
};

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

/* A name that is not UTF-8 still gives a JSON document, with the byte as \xNN. */
static void golden_name_not_utf8(void **state) {
    (void)state;
    static const char name[] = "odd\xff.safetensors";
    size_t n = 0;
    unsigned char *bytes = copy_layer(&n);
    save(bytes, n);
    free(bytes);
    assert_int_equal(rename("changed.safetensors", name), 0);
    const int code = RUN("check", "--target", "cpu", "--golden", name, "--json");
    unlink(name);
    json_t *doc = json_loads(out, 0, NULL);
    if (code || !doc) fail_msg("exit %d: %s%s", code, out, err);
    assert_string_equal(json_string_value(json_object_get(doc, "file")), "odd\\xff.safetensors");
    json_decref(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_layers),    cmocka_unit_test(golden_controls),      cmocka_unit_test(golden_metadata),
        cmocka_unit_test(golden_bad_files), cmocka_unit_test(golden_name_not_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
