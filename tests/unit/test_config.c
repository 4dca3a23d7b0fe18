/* test_config.c - config.json: the shipped checkpoint's is taken; each change that is not supported is refused by name. */
#include "comma_locale.h"
#include "engine_internal.h"
#include "model_config.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

static const char base_file[] = GDN_TEST_DATA "/jargon-tiny/config.json";

static gdn_status parse(const json_t *doc, gdn_model_config *c, char *buf, size_t cap) {
    gdn_text err = { buf, cap, 0 };
    char *text = json_dumps(doc, 0);
    assert_non_null(text);
    const gdn_status s = gdn_config_parse(text, strlen(text), "config.json", c, &err);
    free(text);
    return s;
}

/* The shipped config with `key` replaced by the JSON text `value` (NULL: removed). */
static json_t *changed(const char *key, const char *value) {
    json_t *doc = json_load_file(base_file, 0, NULL);
    assert_non_null(doc);
    if (value) {
        json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        assert_int_equal(json_object_set_new(doc, key, v), 0);
    } else {
        assert_int_equal(json_object_del(doc, key), 0);
    }
    return doc;
}

static void refused(const char *key, const char *value, const char *part) {
    char buf[400] = "";
    gdn_model_config c;
    json_t *doc = changed(key, value);
    const gdn_status s = parse(doc, &c, buf, sizeof buf);
    if (s != GDN_E_MODEL || !strstr(buf, part)) fail_msg("%s = %s: status %d, '%s', expected '%s'", key, value ? value : "-", s, buf, part);
    assert_int_equal(strncmp(buf, "config.json: ", 13), 0);
    assert_null(strchr(buf, '\n'));
    json_decref(doc);
}

static void taken(const char *key, const char *value) {
    char buf[400] = "";
    gdn_model_config c;
    json_t *doc = changed(key, value);
    if (parse(doc, &c, buf, sizeof buf) != GDN_OK) fail_msg("%s = %s: '%s'", key, value ? value : "-", buf);
    json_decref(doc);
}

static void shipped(void **state) {
    (void)state;
    gdn_model_config c;
    assert_int_equal(gdn_config_read(base_file, &c, NULL), GDN_OK);
    assert_int_equal(c.vocab, 256);
    assert_int_equal(c.hidden, 256);
    assert_int_equal(c.inter, 768);
    assert_int_equal(c.layers, 4);
    assert_int_equal(c.nk, 2);
    assert_int_equal(c.nv, 4);
    assert_int_equal(c.k_dim, 128);
    assert_int_equal(c.v_dim, 128);
    assert_int_equal(c.conv_width, 4);
    assert_true(c.eps == 1e-6f && c.tied);
    assert_int_equal(gdn_config_channels(&c), 1024);
    assert_int_equal(gdn_config_qkvz(&c), 1536);
}

static void missing_keys(void **state) {
    (void)state;
    static const char *const keys[] = {
        "model_type",
        "hidden_act",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
        "rms_norm_eps",
        "layer_types",
        "num_experts",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char part[80];
        snprintf(part, sizeof part, "config.json: %s is missing", keys[i]);
        refused(keys[i], NULL, part);
    }
    taken("decoder_sparse_step", NULL);
    taken("mlp_only_layers", NULL);
    taken("tie_word_embeddings", NULL);
    taken("head_dim", NULL); /* of full attention: no bearing */
}

static void wrong_types(void **state) {
    (void)state;
    refused("hidden_size", "\"256\"", "hidden_size must be an integer, is a string");
    refused("hidden_size", "256.0", "hidden_size must be an integer, is a real number");
    refused("vocab_size", "null", "vocab_size must be an integer, is null");
    refused("rms_norm_eps", "\"1e-6\"", "rms_norm_eps must be a number, is a string");
    refused("model_type", "1", "model_type must be a string, is an integer");
    refused("hidden_act", "[]", "hidden_act must be a string, is an array");
    refused("tie_word_embeddings", "1", "tie_word_embeddings must be true or false, is an integer");
    refused("layer_types", "{}", "layer_types must be an array, is an object");
    refused("layer_types", "[\"linear_attention\",\"linear_attention\",\"linear_attention\",1]",
            "layer_types[3] must be a string, is an integer");
    refused("mlp_only_layers", "3", "mlp_only_layers must be an array, is an integer");
    refused("mlp_only_layers", "[\"0\"]", "mlp_only_layers[0] must be an integer, is a string");
    refused("decoder_sparse_step", "true", "decoder_sparse_step must be an integer, is true");
}

static void ranges(void **state) {
    (void)state;
    refused("hidden_size", "0", "hidden_size is 0, must be 8 to 65536");
    refused("hidden_size", "-8", "hidden_size is -8, must be");
    refused("hidden_size", "252", "hidden_size 252 is not a multiple of 8");
    refused("hidden_size", "9223372036854775807", "hidden_size is 9223372036854775807, must be");
    refused("num_hidden_layers", "0", "num_hidden_layers is 0, must be");
    refused("num_hidden_layers", "100000", "num_hidden_layers is 100000, must be 1 to 1024");
    refused("linear_num_value_heads", "3", "linear_num_value_heads 3 is not a multiple of linear_num_key_heads 2");
    refused("linear_key_head_dim", "64", "linear_key_head_dim 64 and linear_value_head_dim 128 differ");
    refused("linear_conv_kernel_dim", "9", "linear_conv_kernel_dim is 9, must be 1 to 8");
    refused("rms_norm_eps", "0", "rms_norm_eps is 0, must be");
    refused("rms_norm_eps", "-1e-6", "rms_norm_eps is -1e-06, must be");
    refused("rms_norm_eps", "1", "rms_norm_eps is 1, must be");
    refused("decoder_sparse_step", "0", "decoder_sparse_step is 0, must be 1");
    json_t *doc = changed("linear_key_head_dim", "96");
    json_object_set_new(doc, "linear_value_head_dim", json_integer(96));
    char buf[400] = "";
    gdn_model_config c;
    assert_int_equal(parse(doc, &c, buf, sizeof buf), GDN_E_MODEL);
    assert_non_null(strstr(buf, "linear_key_head_dim is 96, must be 64 or 128"));
    json_object_set_new(doc, "linear_key_head_dim", json_integer(64)); /* the control: 64 is taken */
    json_object_set_new(doc, "linear_value_head_dim", json_integer(64));
    assert_int_equal(parse(doc, &c, buf, sizeof buf), GDN_OK);
    json_decref(doc);
}

static void other_models(void **state) {
    (void)state;
    refused("model_type", "\"llama\"", "model_type is 'llama', only qwen3_next is supported");
    refused("hidden_act", "\"gelu\"", "hidden_act is 'gelu', only silu is supported");
    refused("layer_types", "[\"linear_attention\",\"linear_attention\",\"linear_attention\",\"full_attention\"]",
            "layer 3 is full_attention, only linear_attention is supported");
    refused("layer_types", "[\"linear_attention\"]", "layer_types has 1 entries, num_hidden_layers is 4");
}

static void experts(void **state) {
    (void)state;
    char buf[400] = "";
    gdn_model_config c;
    taken("num_experts", "8"); /* all four layers are in mlp_only_layers */
    json_t *doc = changed("num_experts", "8");
    json_object_set_new(doc, "mlp_only_layers", json_pack("[i,i,i]", 0, 1, 3));
    assert_int_equal(parse(doc, &c, buf, sizeof buf), GDN_E_MODEL);
    assert_non_null(strstr(buf, "layer 2 has 8 experts (num_experts), only plain MLP layers are supported"));
    json_object_set_new(doc, "decoder_sparse_step", json_integer(2)); /* layers 1 and 3 would, and are in the list */
    assert_int_equal(parse(doc, &c, buf, sizeof buf), GDN_OK);
    json_object_set_new(doc, "decoder_sparse_step", json_integer(3)); /* layer 2 */
    assert_int_equal(parse(doc, &c, buf, sizeof buf), GDN_E_MODEL);
    json_decref(doc);
}

static void hostile_files(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        { "", "not JSON" },
        { "{", "not JSON" },
        { "[]", "not a JSON object" },
        { "\"x\"", "not a JSON object" },
        { "{\"a\":1,\"a\":2}", "duplicate" },
        { "{} {}", "not JSON" },
        { "{\"model_type\":\"q\\u0000\"}", "not JSON" },
    };
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_model_config c;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const gdn_status s = gdn_config_parse(rows[i].text, strlen(rows[i].text), "f", &c, &err);
        if (s != GDN_E_MODEL || !strstr(buf, rows[i].part)) fail_msg("'%s': status %d, '%s'", rows[i].text, s, buf);
    }
    assert_int_equal(gdn_config_read(GDN_TEST_DATA "/none.json", &c, &err), GDN_E_IO);
    assert_non_null(strstr(buf, "none.json: No such file"));
    assert_int_equal(gdn_config_read(GDN_TEST_DATA, &c, &err), GDN_E_IO);
    assert_non_null(strstr(buf, "not a regular file"));
    char small[8] = "";
    gdn_text cut = { small, sizeof small, 0 };
    assert_int_equal(gdn_config_parse("{", 1, "a long label", &c, &cut), GDN_E_MODEL);
    assert_string_equal(small, "a long ");
    assert_true(cut.len > sizeof small);
}

static void quantized(void **state) {
    (void)state;
    refused("quantization_config", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}",
            "quantization_config (fp8) is not supported");
    refused("quantization_config", "{}", "quantization_config (no quant_method) is not supported");
    refused("quantization_config", "\"awq\"", "quantization_config (no quant_method) is not supported");
    taken("quantization_config", "null");
}

/* The same floats whatever the host's locale; eps by its bits. */
static void floats_are_right(const char *where) {
    static const struct {
        const char *text;
        float eps;
    } rows[] = { { "1e-6", 1e-6f },
                 { "1e-06", 1e-6f },
                 { "0.000001", 1e-6f },
                 { "1.5e-5", 1.5e-5f },
                 { "0.088", 0.088f },
                 { "9.99E-2", 0.0999f },
                 { "0.012345678901234567", 0.012345678901234567f } };
    gdn_model_config c;
    assert_int_equal(gdn_config_read(base_file, &c, NULL), GDN_OK);
    assert_true(c.eps == 1e-6f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[200], buf[200] = "";
        gdn_text err = { buf, sizeof buf, 0 };
        json_t *doc = changed("rms_norm_eps", "0");
        json_object_set_new(doc, "rms_norm_eps", json_string("HERE")); /* the number's own text, not a printer's */
        char *all = json_dumps(doc, JSON_COMPACT), *at = strstr(all, "\"HERE\""), *file = malloc(strlen(all) + sizeof text);
        assert_true(at && file);
        (void)sprintf(file, "%.*s%s%s", (int)(at - all), all, rows[i].text, at + strlen("\"HERE\""));
        const gdn_status s = gdn_config_parse(file, strlen(file), "config.json", &c, &err);
        if (s != GDN_OK || c.eps != rows[i].eps) fail_msg("%s: %s read as %.9g: %s", where, rows[i].text, (double)c.eps, buf);
        free(file);
        free(all);
        json_decref(doc);
    }
}

static bool comma_is_the_point(void) {
    char buf[16];
    (void)snprintf(buf, sizeof buf, "%.1f", 0.5);
    return !strcmp(buf, "0,5") && strtod("0.5", NULL) == 0;
}

/* The host calls setlocale or uselocale with a comma locale; afterwards it is still that locale. */
static void B176_floats_in_a_comma_locale(void **state) {
    (void)state;
    const char *name = NULL;
    floats_are_right("C locale");
    assert_false(comma_is_the_point());
    locale_t comma = comma_locale_make(&name);
    if (!comma) {
        print_message("skipped: no locale with a comma, and the C library reads none from LOCPATH\n");
        skip();
    }
    const locale_t before = uselocale(comma);
    assert_true(comma_is_the_point()); /* the control: strtod would be wrong here */
    floats_are_right("uselocale");
    assert_true(uselocale((locale_t)0) == comma);
    assert_true(comma_is_the_point());
    uselocale(before);
    assert_non_null(setlocale(LC_NUMERIC, name));
    assert_true(comma_is_the_point());
    floats_are_right("setlocale");
    assert_string_equal(setlocale(LC_NUMERIC, NULL), name);
    assert_non_null(setlocale(LC_NUMERIC, "C"));
    freelocale(comma);
    comma_locale_remove();
}

/* And nothing that a host may link parses or sets what depends on the locale. The command is a program of its own, which
 * never leaves the C locale. */
static void B176_no_reader_depends_on_the_locale(void **state) {
    (void)state;
    static const char parsers[] = "\\<(strtod|strtof|strtold|atof|setlocale|uselocale)[[:space:]]*\\(|scanf\\([^;]*%[0-9]*l?[aefg]";
    static const char *const places[] = { "host/engine host/*.c plugin kernels/cpu", "tests/unit/test_config.c" };
    for (size_t i = 0; i < 2; i++) {
        char command[600], line[300] = "";
        (void)snprintf(command, sizeof command, "cd '%s' && grep -rnE '%s' %s", GDN_SOURCE_DIR, parsers, places[i]);
        FILE *f = popen(command, "r");
        assert_non_null(f);
        const bool found = fgets(line, sizeof line, f) != NULL;
        while (fgetc(f) != EOF) {}
        const int status = pclose(f);
        assert_true(status != -1 && WIFEXITED(status) && WEXITSTATUS(status) < 2);
        if (found != (i == 1)) fail_msg("%s: %s", places[i], found ? line : "the control is not found"); /* this file has one */
    }
}

/* The rows of in_proj_qkvz: every source row once, and the places that the layout names. */
static void qkvz_rows(void **state) {
    (void)state;
    enum { NK = 2, NV = 6, DIM = 64, R = NV / NK, GROUP = (2 + 2 * R) * DIM, ROWS = NK * GROUP };
    unsigned char seen[ROWS] = { 0 };
    for (uint32_t row = 0; row < ROWS; row++) {
        const uint32_t from = gdn__qkvz_source_row(NK, NV, DIM, row);
        assert_true(from < ROWS);
        assert_int_equal(seen[from]++, 0);
    }
    const uint32_t k = NK * DIM, v = 2 * NK * DIM, z = v + NV * DIM;
    assert_int_equal(gdn__qkvz_source_row(NK, NV, DIM, DIM + 5), GROUP + 5);                         /* q of key head 1 */
    assert_int_equal(gdn__qkvz_source_row(NK, NV, DIM, k + 5), DIM + 5);                             /* k of key head 0 */
    assert_int_equal(gdn__qkvz_source_row(NK, NV, DIM, v + 4 * DIM + 7), GROUP + (2 + 1) * DIM + 7); /* v head 4 = group 1, second */
    assert_int_equal(gdn__qkvz_source_row(NK, NV, DIM, z + 2 * DIM + 9), (2 + R + 2) * DIM + 9);     /* z head 2 = group 0, third  */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped),
        cmocka_unit_test(missing_keys),
        cmocka_unit_test(wrong_types),
        cmocka_unit_test(ranges),
        cmocka_unit_test(other_models),
        cmocka_unit_test(experts),
        cmocka_unit_test(hostile_files),
        cmocka_unit_test(qkvz_rows),
        cmocka_unit_test(quantized),
        cmocka_unit_test(B176_floats_in_a_comma_locale),
        cmocka_unit_test(B176_no_reader_depends_on_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
