/* test_log.c - level filter, a missing callback, once-flags, texts that are too long for their buffer, nearest names, statuses. */
#include "host_test.h"

#include <pthread.h>

static void test_levels(void **state) {
    (void)state;
    heard h;
    for (uint32_t level = GDN_LOG_ERROR; level <= GDN_LOG_DEBUG; level++) {
        const gdn__log log = log_to(&h, level);
        for (uint32_t severity = GDN_LOG_ERROR; severity <= GDN_LOG_DEBUG; severity++)
            gdn__log_line(&log, severity, "area", "severity %u", (unsigned)severity);
        assert_int_equal(h.lines, level);
        gdn__log_raw(&log, GDN_LOG_HOST_BUG, "area", "always");
        assert_int_equal(h.lines, level + 1);
    }
    const gdn__log least = log_to(&h, 0);
    gdn__log_raw(&least, GDN_LOG_ERROR, "area", "no");
    gdn__log_raw(&least, GDN_LOG_HOST_BUG, "area", "a broken rule");
    assert_string_equal(h.text, "area: a broken rule\n");
    static const char *const names[] = { "error", "warn", "info", "debug" };
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(gdn__log_level(names[i]), i + 1);
    static const char *const bad[] = { "", "Error", "warning", "debug ", "5" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(gdn__log_level(bad[i]), 0);
}

/* B147: nobody listens, nothing is said, nothing crashes. */
static void test_nobody(void **state) {
    (void)state;
    const gdn__log log = { NULL, NULL, GDN_LOG_DEBUG };
    gdn__log_line(&log, GDN_LOG_ERROR, "area", "%s", "text");
    gdn__log_raw(&log, GDN_LOG_ERROR, NULL, NULL);
    heard h;
    const gdn__log one = log_to(&h, GDN_LOG_DEBUG);
    gdn__log_raw(&one, GDN_LOG_ERROR, NULL, NULL);
    assert_string_equal(h.text, ": \n");
}

/* One flag a slot and process, whoever asks and from however many threads. */
static _Atomic uint32_t firsts;
static pthread_barrier_t barrier;
static void *ask_all(void *user) {
    (void)pthread_barrier_wait(&barrier);
    for (uint32_t slot = 0; slot < GDN_ONCE_SLOTS; slot++) firsts += gdn__once(user, slot);
    return NULL;
}
static void test_once(void **state) {
    (void)state;
    pthread_t thread[8];
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 8), 0);
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&thread[i], NULL, ask_all, NULL), 0);
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(firsts, GDN_ONCE_SLOTS);
    assert_int_equal(gdn__once(NULL, 0), 0);
    assert_int_equal(gdn__once(NULL, GDN_ONCE_SLOTS), 0); /* no such slot: never the first */
    assert_int_equal(gdn__once(NULL, UINT32_MAX), 0);
}

static void test_texts(void **state) {
    (void)state;
    char buf[8] = "xxxxxxx";
    gdn_text t = { buf, 4, 0 };
    gdn__text_set(&t, "%s", "abcdef");
    assert_string_equal(buf, "abc");
    assert_int_equal(t.len, 6); /* the full length: it was cut */
    assert_memory_equal(buf + 4, "xxx", 4);
    gdn__text_add(&t, "%s", "gh");
    assert_int_equal(t.len, 8);
    assert_string_equal(buf, "abc");
    gdn__text_set(&t, "%s", "a");
    gdn__text_add(&t, "%s", "bcd");
    assert_string_equal(buf, "abc");
    assert_int_equal(t.len, 4);
    gdn_text none = { NULL, 0, 0 };
    gdn__text_set(&none, "%s", "abc");
    assert_int_equal(none.len, 3);
    gdn__text_set(NULL, "%s", "abc");
    gdn__text_add(NULL, "%s", "abc");
}

static void test_nearest(void **state) {
    (void)state;
    static const char *const names[] = { "gdn_pipe", "gdn_vtile", "w4a4_mx_nt", "w4a4_mx_ps" };
    assert_string_equal(gdn__nearest("gdn_pip", names, 4), "gdn_pipe");
    assert_string_equal(gdn__nearest("gdn_piep", names, 4), "gdn_pipe");
    assert_string_equal(gdn__nearest("w4a4_mx_pt", names, 4), "w4a4_mx_nt"); /* a tie goes to the first */
    assert_string_equal(gdn__nearest("w4a4mxps", names, 4), "w4a4_mx_ps");
    assert_null(gdn__nearest("zzz", names, 4));
    assert_null(gdn__nearest_within("gdn_pixx", names, 4, 1));
    assert_string_equal(gdn__nearest_within("gdn_pixx", names, 4, 2), "gdn_pipe");
    assert_null(gdn__nearest("", names, 4));
    char word[200];
    memset(word, 'g', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    assert_null(gdn__nearest(word, names, 4));
}

static void test_status_texts(void **state) {
    (void)state;
    const char *texts[64];
    int n = 0;
    for (gdn_status s = -32; s <= 8; s++) {
        const bool known = strcmp(gdn_status_name(s), "unknown status") != 0;
        assert_true(known == (s >= -18 && s <= 2));
        if (!known) assert_string_equal(gdn_status_text(s), "unknown status");
        for (int i = 0; known && i < n; i++) assert_string_not_equal(texts[i], gdn_status_text(s));
        if (known) texts[n++] = gdn_status_text(s);
    }
    assert_int_equal(n, 21);
    assert_string_equal(gdn_status_name(GDN_E_LEVER), "GDN_E_LEVER");
    assert_string_equal(gdn_status_name(INT32_MIN), "unknown status");
    assert_string_equal(gdn_status_name(INT32_MAX), "unknown status");
    for (uint32_t op = 1; op <= 17; op++) assert_int_equal(gdn_op_by_name(gdn_op_name(op)), op);
    assert_null(gdn_op_name(0));
    assert_null(gdn_op_name(19));
    assert_null(gdn_op_name(UINT32_MAX));
    assert_int_equal(gdn_op_by_name("Decode"), 0);
    assert_int_equal(gdn_op_by_name(""), 0);
    assert_int_equal(gdn_op_by_name(NULL), 0);
    assert_string_equal(gdn_version(), "0.1.0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels), cmocka_unit_test(test_nobody),  cmocka_unit_test(test_once),
        cmocka_unit_test(test_texts),  cmocka_unit_test(test_nearest), cmocka_unit_test(test_status_texts),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL) != 0;
}
