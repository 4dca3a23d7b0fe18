/* test_lookup.c - prompt lookup: the longest earlier match, then the latest, continued past the end by itself. */
#include "prompt_lookup.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WANT = 3 };

/* Drafts for a text given as a string; min 2, max 8. */
static void expect(const char *text, const char *drafts, uint32_t matched) {
    uint32_t tokens[200], out[WANT] = { 0 }, len = 99;
    const size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) tokens[i] = (unsigned char)text[i];
    const uint32_t got = gdn_lookup(tokens, n, 2, 8, WANT, out, &len);
    char shown[WANT + 1] = "";
    for (uint32_t i = 0; i < got; i++) shown[i] = (char)out[i];
    if (strcmp(shown, drafts) != 0 || len != matched)
        fail_msg("'%s': drafts '%s' by %u, expected '%s' by %u", text, shown, len, drafts, matched);
}

static void matches(void **state) {
    (void)state;
    expect("the cat. the c", "at.", 5);
    expect("abXabY..ab", "Y..", 2);            /* the latest of two of one length */
    expect("qabX..abY..qab", "X..", 3);        /* the longest, though an earlier one */
    expect("0123456789 0123456789", " 01", 8); /* longer matches are cut at the maximum */
    expect("abcabc", "abc", 3);                /* runs into the end and goes on by itself */
    expect("xaaaa", "aaa", 3);
    expect("zabab", "aba", 2);
}

static void no_match(void **state) {
    (void)state;
    expect("abcdef", "", 0);
    expect("abcdea", "", 1); /* below the minimum */
    expect("", "", 0);
    expect("a", "", 0);
    expect("aa", "", 1);
    uint32_t out[1] = { 7 };
    assert_int_equal(gdn_lookup(NULL, 0, 1, 8, 1, out, NULL), 0);
    const uint32_t aa[2] = { 5, 5 };
    assert_int_equal(gdn_lookup(aa, 2, 1, 8, 1, out, NULL), 1);
    assert_int_equal(out[0], 5);
    assert_int_equal(gdn_lookup(aa, 2, 0, 0, 1, out, NULL), 0); /* nothing to match is no match */
}

/* Against a plain search on random texts over a small alphabet. */
static void against_plain(void **state) {
    (void)state;
    uint32_t text[60], out[WANT];
    uint32_t seed = 12345, drafts = 0;
    for (int trial = 0; trial < 2000; trial++) {
        const uint32_t n = 1 + (uint32_t)trial % 60;
        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = (seed >> 24) % 3;
        }
        uint32_t best = 0, from = 0;
        for (uint32_t len = 1; len <= 8 && len < n; len++)
            for (uint32_t at = 0; at + len < n; at++)
                if (!memcmp(text + at, text + n - len, len * sizeof *text)) {
                    best = len;
                    from = at + len;
                }
        uint32_t matched = 0;
        const uint32_t got = gdn_lookup(text, n, 2, 8, WANT, out, &matched);
        assert_int_equal(matched, best);
        assert_int_equal(got, best >= 2 ? WANT : 0);
        for (uint32_t i = 0; i < got && from + i < n; i++) assert_int_equal(out[i], text[from + i]);
        drafts += got;
    }
    assert_true(drafts > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(matches), cmocka_unit_test(no_match), cmocka_unit_test(against_plain) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
