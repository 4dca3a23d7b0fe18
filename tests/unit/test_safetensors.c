/* test_safetensors.c - the safetensors reader: good files read back exactly, every malformed one named in one line. */
#include "safetensors.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A file: length word, header, data. */
typedef struct image {
    unsigned char *bytes;
    uint64_t size;
} image;

static image build_with_length(const char *header, uint64_t length, uint64_t data_size) {
    const size_t n = strlen(header);
    image f = { calloc(1, 8 + n + data_size + 1), 8 + n + data_size };
    assert_non_null(f.bytes);
    for (int i = 0; i < 8; i++) f.bytes[i] = (unsigned char)(length >> (8 * i));
    memcpy(f.bytes + 8, header, n);
    for (uint64_t i = 0; i < data_size; i++) f.bytes[8 + n + i] = (unsigned char)(i * 7 + 1);
    return f;
}

static image build(const char *header, uint64_t data_size) {
    return build_with_length(header, strlen(header), data_size);
}

/* The file must be refused with GDN_E_MODEL and one line that begins with the label and holds `part`. */
static void refused(image f, const char *part) {
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_st *st = (gdn_st *)buf;
    const gdn_status s = gdn_st_open_memory(f.bytes, f.size, "some.safetensors", &st, &err);
    if (s != GDN_E_MODEL || !strstr(buf, part)) fail_msg("status %d, text '%s', expected '%s'", s, buf, part);
    assert_null(st);
    assert_int_equal(strncmp(buf, "some.safetensors: ", 18), 0);
    assert_null(strchr(buf, '\n'));
    free(f.bytes);
}

#define ENTRY(dtype, shape, offsets) "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

/* The base that the hostile rows differ from must itself be good, or they would prove nothing. */
static void good_file(void **state) {
    (void)state;
    image f = build("{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
                    "\"a\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[0,4]},"
                    "\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[4,4]}}   ",
                    12);
    unsigned char *data = f.bytes + f.size - 12;
    const uint16_t half[2] = { 0x3f80, 0xc040 }; /* 1, -3 */
    const float full[2] = { 0.1f, -2.5f };
    memcpy(data, half, 4);
    memcpy(data + 4, full, 8);
    gdn_st *st = NULL;
    assert_int_equal(gdn_st_open_memory(f.bytes, f.size, "x", &st, NULL), GDN_OK);
    assert_int_equal(gdn_st_count(st), 3);
    assert_string_equal(gdn_st_at(st, 0)->name, "a");
    assert_string_equal(gdn_st_at(st, 2)->name, "e");
    assert_null(gdn_st_at(st, 3));
    assert_null(gdn_st_find(st, "c"));
    assert_null(gdn_st_find(st, "__metadata__"));
    assert_string_equal(gdn_st_metadata(st, "format"), "pt");
    assert_null(gdn_st_metadata(st, "none"));
    const gdn_st_tensor *a = gdn_st_find(st, "a"), *b = gdn_st_find(st, "b"), *e = gdn_st_find(st, "e");
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->count, 2);
    assert_int_equal(e->count, 0);
    float out[2];
    gdn_st_read_f32(a, 0, 2, out);
    assert_true(out[0] == 1.0f && out[1] == -3.0f);
    gdn_st_read_f32(b, 0, 2, out); /* lies at an odd multiple of 4 after an unpadded header */
    assert_memory_equal(out, full, sizeof full);
    gdn_st_read_f32(b, 1, 1, out);
    assert_true(out[0] == full[1]);
    gdn_st_close(st);
    free(f.bytes);
}

static void f16_values(void **state) {
    (void)state;
    image f = build(ENTRY("\"F16\"", "[8]", "[0,16]"), 16);
    /* 1, -2, 65504, the smallest subnormal, the largest subnormal, -0, inf, NaN */
    const uint16_t half[8] = { 0x3c00, 0xc000, 0x7bff, 0x0001, 0x03ff, 0x8000, 0x7c00, 0x7e00 };
    memcpy(f.bytes + f.size - 16, half, 16);
    gdn_st *st = NULL;
    assert_int_equal(gdn_st_open_memory(f.bytes, f.size, "x", &st, NULL), GDN_OK);
    float v[8];
    gdn_st_read_f32(gdn_st_at(st, 0), 0, 8, v);
    assert_true(v[0] == 1.0f && v[1] == -2.0f && v[2] == 65504.0f && v[3] == 0x1p-24f && v[4] == 1023 * 0x1p-24f);
    assert_true(v[5] == 0 && 1 / v[5] < 0 && v[6] > 1e38f && v[7] != v[7]);
    gdn_st_close(st);
    free(f.bytes);
}

static void hostile_entries(void **state) {
    (void)state;
    static const struct {
        const char *header;
        uint64_t data;
        const char *part;
    } rows[] = {
        { ENTRY("\"F4\"", "[1]", "[0,4]"), 4, "'t': dtype 'F4' is not known" },
        { ENTRY("7", "[1]", "[0,4]"), 4, "dtype is missing or not a string" },
        { ENTRY("\"F32\"", "3", "[0,4]"), 4, "shape is missing or not an array" },
        { ENTRY("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "more than 8 dimensions" },
        { ENTRY("\"F32\"", "[-1]", "[0,4]"), 4, "shape holds something that is not a whole number" },
        { ENTRY("\"F32\"", "[1.0]", "[0,4]"), 4, "shape holds something that is not a whole number" },
        { ENTRY("\"F32\"", "[\"1\"]", "[0,4]"), 4, "shape holds something that is not a whole number" },
        { ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4, "shape overflows 64 bits" },
        { ENTRY("\"F64\"", "[4611686018427387904]", "[0,0]"), 0, "shape overflows 64 bits" },
        { ENTRY("\"F32\"", "[1]", "[0]"), 4, "data_offsets is not an array of two" },
        { ENTRY("\"F32\"", "[1]", "[0,4,8]"), 4, "data_offsets is not an array of two" },
        { ENTRY("\"F32\"", "[1]", "[-4,0]"), 4, "data_offsets holds something that is not a whole number" },
        { ENTRY("\"F32\"", "[1]", "[0,\"4\"]"), 4, "data_offsets holds something that is not a whole number" },
        { ENTRY("\"F32\"", "[1]", "[4,0]"), 4, "data_offsets run backwards" },
        { ENTRY("\"F32\"", "[2]", "[0,8]"), 7, "data_offsets end beyond the file (truncated?)" },
        { ENTRY("\"F32\"", "[1]", "[0,9223372036854775807]"), 4, "data_offsets end beyond the file" },
        { ENTRY("\"F32\"", "[2]", "[0,4]"), 4, "need 8 bytes, data_offsets hold 4" },
        { ENTRY("\"F32\"", "[1]", "[4,8]"), 8, "there is a hole before it" },
        { ENTRY("\"F32\"", "[1]", "[0,4]"), 5, "1 bytes after the last tensor" },
        { "{\"t\":[]}", 0, "entry is not an object" },
        { "{\"t\":{}}", 0, "dtype is missing" },
        { "{}", 3, "3 bytes after the last tensor" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
          6, "'b': overlaps the tensor before it" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          4, "overlaps the tensor before it" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
          0, "duplicate" },
        { "{\"__metadata__\":3}", 0, "__metadata__ is not an object" },
        { "{\"__metadata__\":{\"k\":1}}", 0, "__metadata__ value of 'k' is not a string" },
        { "{\"a\\nb\":{\"dtype\":\"X\"}}", 0, "'a?b': dtype 'X'" }, /* a name cannot break the line */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) refused(build(rows[i].header, rows[i].data), rows[i].part);
}

static void hostile_headers(void **state) {
    (void)state;
    refused(build("[]", 0), "header is not a JSON object");
    refused(build("3", 0), "header is not a JSON object");
    refused(build("", 0), "header is not JSON");
    refused(build("{\"a\":", 0), "header is not JSON");
    refused(build("{} x", 0), "header is not JSON");
    refused(build("{\"\xff\":1}", 0), "header is not JSON");
    refused(build_with_length("{}", 3, 0), "header length 3 is beyond the file's 10 bytes");
    refused(build_with_length("{}", UINT64_MAX, 0), "is above the limit");
    refused(build_with_length("{}", 100000001, 0), "is above the limit");
    image few = build("{}", 0);
    for (few.size = 0; few.size < 8; few.size++) {
        image f = { malloc(8), few.size };
        assert_non_null(f.bytes);
        memcpy(f.bytes, few.bytes, 8);
        refused(f, "are too few for a safetensors file");
    }
    free(few.bytes);
    char *deep = malloc(200001);
    assert_non_null(deep);
    memset(deep, '[', 200000);
    deep[200000] = 0;
    refused(build(deep, 0), "header is not JSON");
    free(deep);
}

/* Every prefix of a real recording is refused; the whole is not. */
static void truncated(void **state) {
    (void)state;
    image f = build(ENTRY("\"F32\"", "[3]", "[0,12]"), 12);
    for (uint64_t n = 0; n < f.size; n++) {
        image cut = { malloc((size_t)n + 1), n };
        assert_non_null(cut.bytes);
        memcpy(cut.bytes, f.bytes, (size_t)n);
        refused(cut, "");
    }
    gdn_st *st = NULL;
    assert_int_equal(gdn_st_open_memory(f.bytes, f.size, "x", &st, NULL), GDN_OK);
    gdn_st_close(st);
    free(f.bytes);
}

static void files(void **state) {
    (void)state;
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_st *st = NULL;
    assert_int_equal(gdn_st_open(GDN_TEST_DATA "/jargon-tiny/model.safetensors", &st, &err), GDN_OK);
    const gdn_st_tensor *t = gdn_st_find(st, "model.layers.3.linear_attn.conv1d.weight");
    assert_non_null(t);
    assert_int_equal(t->rank, 3);
    assert_int_equal(t->shape[0], 1024);
    assert_true(gdn_st_is_float(t));
    gdn_st_close(st);
    assert_int_equal(gdn_st_open(GDN_TEST_DATA "/none.safetensors", &st, &err), GDN_E_IO);
    assert_non_null(strstr(buf, "none.safetensors: No such file"));
    assert_int_equal(gdn_st_open(GDN_TEST_DATA, &st, &err), GDN_E_IO);
    assert_non_null(strstr(buf, "not a regular file"));
    assert_int_equal(gdn_st_open(GDN_TEST_DATA "/jargon-tiny/README.md", &st, &err), GDN_E_MODEL);
    assert_non_null(strstr(buf, "not a safetensors file?"));
    assert_int_equal(gdn_st_open("/dev/null", &st, &err), GDN_E_IO);
    char name[] = "empty-XXXXXX";
    const int fd = mkstemp(name);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(gdn_st_open(name, &st, &err), GDN_E_MODEL);
    assert_non_null(strstr(buf, "the file is empty"));
    unlink(name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file),       cmocka_unit_test(f16_values), cmocka_unit_test(hostile_entries),
        cmocka_unit_test(hostile_headers), cmocka_unit_test(truncated),  cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
