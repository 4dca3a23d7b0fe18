/* test_engine_files.c - checkpoint folders: whole ones in one or two files load alike, spoiled ones are refused by name. */
#include "engine.h"
#include "target.h"
#include "tiny_checkpoint.h"
#include <math.h>

static gdn_status try_load(const char *dir, gdn_engine **e, char *buf, size_t cap) {
    gdn_text err = { buf, cap, 0 };
    const gdn_engine_options opt = { .target = target() };
    buf[0] = 0;
    *e = NULL;
    return gdn_engine_load(dir, &opt, e, &err);
}

static void refused(tiny t, gdn_status status, const char *part) {
    char buf[500];
    gdn_engine *e = NULL;
    tiny_make(&t, 3);
    const gdn_status s = try_load(t.dir, &e, buf, sizeof buf);
    tiny_remove(&t);
    if (s != status || e || !strstr(buf, part)) fail_msg("status %d, '%s', expected %d with '%s'", s, buf, status, part);
    assert_int_equal(strncmp(buf, t.dir, strlen(t.dir)), 0); /* the line names the file */
    assert_null(strchr(buf, '\n'));
}

#define SPOILED(...)                                                                                              \
    (tiny) {                                                                                                      \
        .vocab = 40, .hidden = 32, .inter = 48, .layers = 2, .nk = 2, .nv = 4, .dim = 64, .width = 4, __VA_ARGS__ \
    }

static void spoiled(void **state) {
    (void)state;
    refused(SPOILED(.drop = "model.layers.1.linear_attn.A_log"), GDN_E_MODEL,
            "model.safetensors: tensor 'model.layers.1.linear_attn.A_log' is missing");
    refused(SPOILED(.drop = "lm_head.weight"), GDN_E_MODEL, "tensor 'lm_head.weight' is missing");
    refused(SPOILED(.drop = "model.embed_tokens.weight"), GDN_E_MODEL, "tensor 'model.embed_tokens.weight' is missing");
    refused(SPOILED(.odd_shape = "model.layers.0.linear_attn.in_proj_qkvz.weight"), GDN_E_MODEL,
            "'model.layers.0.linear_attn.in_proj_qkvz.weight' has shape [769,32], config.json asks for [768,32]");
    refused(SPOILED(.odd_shape = "model.layers.1.linear_attn.conv1d.weight"), GDN_E_MODEL,
            "has shape [513,1,4], config.json asks for [512,1,4]");
    refused(SPOILED(.odd_shape = "model.norm.weight"), GDN_E_MODEL, "has shape [33], config.json asks for [32]");
    refused(SPOILED(.odd_type = "model.layers.1.mlp.up_proj.weight"), GDN_E_MODEL,
            "'model.layers.1.mlp.up_proj.weight' is I32, must be BF16, F16 or F32");
    refused(SPOILED(.cut = 1), GDN_E_MODEL, "data_offsets end beyond the file (truncated?)");
    refused(SPOILED(.shards = 2, .cut = 5), GDN_E_MODEL, "model-2.safetensors: ");
    refused(SPOILED(.shards = 2, .drop = "model.layers.1.mlp.up_proj.weight"), GDN_E_MODEL,
            "'model.layers.1.mlp.up_proj.weight' is missing");
    refused(SPOILED(.key = "layer_types", .value = "[\"linear_attention\",\"full_attention\"]"), GDN_E_MODEL,
            "config.json: layer 1 is full_attention, only linear_attention is supported");
    refused(SPOILED(.key = "num_experts", .value = "4"), GDN_E_MODEL, "config.json: layer 0 has 4 experts");
    refused(SPOILED(.key = "quantization_config", .value = "{\"quant_method\":\"fp8\"}"), GDN_E_MODEL,
            "config.json: quantization_config (fp8) is not supported");
    refused(SPOILED(.key = "hidden_size", .value = "\"32\""), GDN_E_MODEL, "config.json: hidden_size must be an integer, is a string");
    refused(SPOILED(.key = "vocab_size", .value = "41"), GDN_E_MODEL, "has shape [40,32], config.json asks for [41,32]");
}

static void not_a_checkpoint(void **state) {
    (void)state;
    char buf[500];
    gdn_engine *e = NULL;
    assert_int_equal(try_load("no-such-folder", &e, buf, sizeof buf), GDN_E_IO);
    assert_string_equal(buf, "no-such-folder: No such file or directory");
    assert_int_equal(try_load(GDN_TEST_DATA "/jargon-tiny/config.json", &e, buf, sizeof buf), GDN_E_IO);
    assert_non_null(strstr(buf, "config.json: not a folder"));
    assert_int_equal(try_load(GDN_TEST_DATA "/golden", &e, buf, sizeof buf), GDN_E_IO);
    assert_non_null(strstr(buf, "golden/config.json: No such file"));
}

/* Whatever the model would not use is refused by name, but for derived values and a tied head's own copy. */
static void more_than_the_model(void **state) {
    (void)state;
    static const char *const names[] = {
        "linear_attn.conv1d.bias",
        "model.layers.0.linear_attn.conv1d.bias",
        "model.layers.0.linear_attn.in_proj_qkvz.weight_scale_inv",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.mlp.experts.0.up_proj.weight",
        "model.layers.2.input_layernorm.weight",
        "model.layers.00.input_layernorm.weight",
        "model.foo",
        "mtp.norm.weight",
        "embed_tokens.weight",
        "model.rotary_emb.inv_freq.weight",
        "",
    };
    for (size_t i = 0; i < N_OF(names); i++) {
        char part[200];
        (void)snprintf(part, sizeof part, "model.safetensors: tensor '%s' has no place in the model that config.json describes", names[i]);
        refused(SPOILED(.extra = names[i]), GDN_E_MODEL, part);
    }
    refused(SPOILED(.shards = 2, .extra = "model.foo"), GDN_E_MODEL, "model-2.safetensors: tensor 'model.foo' has no place");
    refused(SPOILED(.shards = 2, .extra = "model.embed_tokens.weight"), GDN_E_MODEL,
            "tensor 'model.embed_tokens.weight' is in another file too");
    refused(SPOILED(.tied = true, .extra = "lm_head.weight"), GDN_E_MODEL,
            "tensor 'lm_head.weight' is not the embedding, as config.json's tie_word_embeddings says");
    refused(SPOILED(.tied = true, .head_too = true, .spoil = "lm_head.weight", .spoilt = 3), GDN_E_MODEL,
            "tensor 'lm_head.weight' is not the embedding");
    const tiny harmless[] = {
        SPOILED(.tied = true, .head_too = true),
        SPOILED(.tied = true, .head_too = true, .shards = 2),
        SPOILED(.extra = "model.rotary_emb.inv_freq"),
        SPOILED(.extra = "model.layers.0.self_attn.rotary_emb.inv_freq"),
    };
    for (size_t i = 0; i < N_OF(harmless); i++) {
        char buf[500];
        tiny t = harmless[i];
        gdn_engine *e = NULL;
        tiny_make(&t, 3);
        if (try_load(t.dir, &e, buf, sizeof buf) != GDN_OK) fail_msg("%zu: %s", i, buf);
        gdn_engine_free(e);
        tiny_remove(&t);
    }
}

/* Weights that are not finite are refused where they are read, by tensor and element. */
static void not_finite(void **state) {
    (void)state;
    static const char *const names[] = { "model.embed_tokens.weight",
                                         "lm_head.weight",
                                         "model.norm.weight",
                                         "model.layers.0.input_layernorm.weight",
                                         "model.layers.1.linear_attn.in_proj_qkvz.weight",
                                         "model.layers.0.linear_attn.in_proj_ba.weight",
                                         "model.layers.1.linear_attn.A_log",
                                         "model.layers.0.linear_attn.dt_bias",
                                         "model.layers.1.linear_attn.conv1d.weight",
                                         "model.layers.0.linear_attn.norm.weight",
                                         "model.layers.1.linear_attn.out_proj.weight",
                                         "model.layers.0.post_attention_layernorm.weight",
                                         "model.layers.1.mlp.gate_proj.weight",
                                         "model.layers.0.mlp.up_proj.weight",
                                         "model.layers.1.mlp.down_proj.weight" };
    for (size_t i = 0; i < N_OF(names); i++) {
        char part[200];
        (void)snprintf(part, sizeof part, "model.safetensors: tensor '%s' is not finite: element ", names[i]);
        refused(SPOILED(.spoil = names[i], .spoilt = NAN), GDN_E_MODEL, part);
        refused(SPOILED(.f32 = true, .spoil = names[i], .spoilt = -INFINITY), GDN_E_MODEL, part);
    }
    refused(SPOILED(.spoil = "model.norm.weight", .spoilt = NAN), GDN_E_MODEL, "element 31 is NaN");
    refused(SPOILED(.f32 = true, .spoil = "model.norm.weight", .spoilt = INFINITY), GDN_E_MODEL, "element 31 is infinite");
}

/* weight_map may name plain files of the folder only. */
static void hostile_index(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        { "{\"weight_map\":{\"a\":\"../model.safetensors\"}}", "weight_map of 'a' is not a plain file name" },
        { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "weight_map of 'a' is not a plain file name" },
        { "{\"weight_map\":{\"a\":\"..\"}}", "weight_map of 'a' is not a plain file name" },
        { "{\"weight_map\":{\"a\":7}}", "weight_map of 'a' is not a plain file name" },
        { "{\"weight_map\":[]}", "weight_map is missing or not an object" },
        { "{\"weight_map\":{}}", "weight_map is empty" },
        { "{", "line 1: not JSON" },
        { "{\"weight_map\":{\"a\":\"other.safetensors\"}}", "other.safetensors: No such file" },
    };
    tiny t = TINY_DEFAULT;
    tiny_make(&t, 3);
    for (size_t i = 0; i < N_OF(rows); i++) {
        char buf[500];
        gdn_engine *e = NULL;
        tiny_write(&t, "model.safetensors.index.json", rows[i].text, strlen(rows[i].text));
        const gdn_status s = try_load(t.dir, &e, buf, sizeof buf);
        if (s >= 0 || !strstr(buf, rows[i].part)) fail_msg("'%s': status %d, '%s'", rows[i].text, s, buf);
    }
    tiny_remove(&t);
}

static void two_files(void **state) {
    (void)state;
    char buf[500];
    float a[3 * 40], b[3 * 40];
    const uint32_t tokens[3] = { 7, 8, 9 };
    for (uint32_t shards = 1; shards <= 2; shards++) {
        tiny t = TINY_DEFAULT;
        t.shards = shards;
        tiny_make(&t, 3);
        gdn_engine *e = NULL;
        if (try_load(t.dir, &e, buf, sizeof buf) != GDN_OK) fail_msg("%s", buf);
        assert_int_equal(gdn_engine_config(e)->vocab, 40);
        assert_int_equal(gdn_engine_prefill(e, tokens, 3, true, shards == 1 ? a : b, NULL), GDN_OK);
        gdn_engine_free(e);
        tiny_remove(&t);
    }
    assert_memory_equal(a, b, sizeof a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spoiled),       cmocka_unit_test(not_a_checkpoint),
        cmocka_unit_test(hostile_index), cmocka_unit_test(more_than_the_model),
        cmocka_unit_test(not_finite),    cmocka_unit_test(two_files),
    };
    return cmocka_run_group_tests(tests, target_setup, target_teardown);
}
