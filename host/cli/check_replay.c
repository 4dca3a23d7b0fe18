/* check_replay.c - one case of recorded text, out of JSON and checked. */
#include "check_replay.h"
#include <stdlib.h>

void replay_free(replay_case *k) {
    free(k->tokens);
    free(k->gap);
    free(k->first);
    *k = (replay_case) { 0 };
}

static bool numbers(const json_t *a, uint64_t n) {
    if (!json_is_array(a) || json_array_size(a) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (!json_is_number(json_array_get(a, i))) return false;
    return true;
}

static bool all_from_zero(const json_t *a) {
    for (size_t i = 0; i < json_array_size(a); i++)
        if (json_number_value(json_array_get(a, i)) < 0) return false;
    return true;
}

static bool tokens_fit(const json_t *a, uint32_t vocab) {
    if (!json_is_array(a) || !json_array_size(a)) return false;
    for (size_t i = 0; i < json_array_size(a); i++) {
        const json_t *v = json_array_get(a, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= (json_int_t)vocab) return false;
    }
    return true;
}

const char *replay_read(const json_t *j, uint32_t vocab, replay_case *k) {
    const json_t *prompt = json_object_get(j, "prompt"), *tokens = json_object_get(j, "tokens"), *gap = json_object_get(j, "top2_gap"),
                 *first = json_object_get(j, "first_logits");
    if (!json_is_string(prompt) || !json_string_length(prompt)) return "prompt is missing, empty or not a string";
    if (!tokens_fit(tokens, vocab)) return "tokens is missing, empty or holds something outside the vocabulary";
    k->n = json_array_size(tokens);
    k->n_prompt = json_string_length(prompt);
    k->prompt = json_string_value(prompt);
    if (!numbers(gap, k->n) || !all_from_zero(gap)) return "top2_gap is not one number of 0 or more a token";
    if (first && !numbers(first, vocab)) return "first_logits is not one number a vocabulary entry";
    k->tokens = malloc((size_t)(k->n_prompt + k->n) * sizeof *k->tokens);
    k->gap = malloc((size_t)k->n * sizeof *k->gap);
    k->first = first ? malloc(vocab * sizeof *k->first) : NULL;
    if (!k->tokens || !k->gap || (first && !k->first)) return "out of memory";
    for (uint64_t i = 0; i < k->n_prompt; i++) k->tokens[i] = (unsigned char)k->prompt[i];
    for (uint64_t i = 0; i < k->n; i++) {
        k->tokens[k->n_prompt + i] = (uint32_t)json_integer_value(json_array_get(tokens, i));
        k->gap[i] = json_number_value(json_array_get(gap, i));
    }
    for (uint32_t i = 0; first && i < vocab; i++) k->first[i] = (float)json_number_value(json_array_get(first, i));
    return NULL;
}
