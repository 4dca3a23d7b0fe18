/* test_recorded.c - `gdn check --replay`, recorded text through a checkpoint, and `gdn generate`. */
#include "command_run.h"

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
    FILE *empty = fopen("empty.prompt", "wb");
    assert_non_null(empty);
    assert_int_equal(fclose(empty), 0);
    one_line(RUN("generate", "--model", model, "--prompt-file", "empty.prompt"), 1, "empty.prompt: the file is empty");
    unlink("empty.prompt");
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
        cmocka_unit_test(first_logits), cmocka_unit_test(replayed),           cmocka_unit_test(replay_controls),
        cmocka_unit_test(generated),    cmocka_unit_test(generate_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
