/* target.c - see target.h. */
#include "target.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *target_woa = "1";
static gdn *handle;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 16];
static size_t log_len;

static void keep_line(void *user, uint32_t severity, const char *area, const char *msg) {
    (void)user;
    pthread_mutex_lock(&log_lock);
    const size_t room = sizeof log_text - log_len;
    const int n = snprintf(log_text + log_len, room, "[%u %s] %s\n", severity, area ? area : "", msg ? msg : "");
    if (n > 0) log_len += (size_t)n < room ? (size_t)n : room - 1;
    pthread_mutex_unlock(&log_lock);
}

static const char *target_name(void) {
    const char *name = getenv("GDN_TEST_TARGET");
    return name ? name : "cpu";
}
bool target_is_named(const char *name) {
    return strcmp(target_name(), name) == 0;
}
bool target_is_cpu(void) {
    return target_is_named("cpu");
}

uint32_t target_act(void) {
    return target_is_cpu() ? GDN_F32 : GDN_BF16;
}
bool target_is_light(void) {
    return TEST_LIGHT || !target_is_cpu();
}

gdn *target(void) {
    if (handle) return handle;
    char text[1024] = "";
    gdn_text err = { text, sizeof text, 0 };
    gdn_options opt = GDN_OPTIONS_INIT;
    opt.target = target_name();
    opt.log = keep_line;
    const char *device = getenv("GDN_TEST_DEVICE");
    if (device) opt.ordinal = atoi(device);
    const gdn_setting woa = { "gdn_woa", target_woa };
    if (target_woa) {
        opt.settings = &woa;
        opt.n_settings = 1;
    }
    if (!getenv("GDN_PLUGIN_PATH")) opt.plugin_path = GDN_PLUGIN_DIR;
    const gdn_status s = gdn_open(&opt, &handle, &err);
    if (s != GDN_OK) {
        fprintf(stderr, "gdn_open(%s): %s: %s\n", opt.target, gdn_status_name(s), text);
        exit(3);
    }
    return handle;
}

int target_setup(void **state) {
    (void)state;
    return target() ? 0 : -1;
}

int target_teardown(void **state) {
    (void)state;
    gdn_close(handle);
    handle = NULL;
    return 0;
}

void target_log_clear(void) {
    pthread_mutex_lock(&log_lock);
    log_len = 0;
    log_text[0] = 0;
    pthread_mutex_unlock(&log_lock);
}

bool target_logged(const char *part) {
    pthread_mutex_lock(&log_lock);
    const bool found = strstr(log_text, part) != NULL;
    pthread_mutex_unlock(&log_lock);
    return found;
}

const char *target_log_text(void) {
    return log_text;
}

gdn_status plan_try(const void *shape, gdn_hplan **out, char *text, uint32_t cap) {
    gdn_text err = { text, cap, 0 };
    text[0] = 0;
    *out = NULL;
    const gdn_status s = gdn_plan_make(target(), shape, NULL, out, &err);
    if (s == GDN_OK) {
        assert_non_null(*out);
    } else {
        assert_null(*out);
    }
    return s;
}

gdn_hplan *plan_ok(const void *shape) {
    gdn_hplan *p;
    char text[512];
    const gdn_status s = plan_try(shape, &p, text, sizeof text);
    if (s != GDN_OK) fail_msg("plan: %s: %s", gdn_status_name(s), text);
    return p;
}

void plan_fails(const void *shape, gdn_status status, const char *part) {
    gdn_hplan *p;
    char text[512];
    const gdn_status s = plan_try(shape, &p, text, sizeof text);
    gdn_plan_free(p);
    if (s != status) fail_msg("plan: expected %s naming \"%s\", got %s: %s", gdn_status_name(status), part, gdn_status_name(s), text);
    if (!strstr(text, part)) fail_msg("plan: %s, but the text does not name \"%s\": %s", gdn_status_name(s), part, text);
}

uint64_t plan_workspace(const gdn_hplan *p) {
    gdn_route r = { .struct_size = sizeof r };
    const gdn_status s = gdn_explain(p, 0, NULL, &r);
    if (s != GDN_OK) fail_msg("explain: %s", gdn_status_name(s));
    return r.workspace_bytes;
}

gdn_status launch(const gdn_hplan *p, uint32_t n_ptr, const uint64_t *ptr, uint32_t n_u32, const uint32_t *u32) {
    const gdn_launch_args a = { .struct_size = sizeof a, .n_ptr = n_ptr, .n_u32 = n_u32, .ptr = ptr, .u32 = u32 };
    const gdn_status s = gdn_launch(p, &a);
    return s || target_is_cpu() ? s : gdn_sync(target(), NULL);
}

void run_ok(const void *shape, uint32_t n_ptr, const uint64_t *ptr, uint32_t n_u32, const uint32_t *u32) {
    gdn_hplan *p = plan_ok(shape);
    const gdn_status s = launch(p, n_ptr, ptr, n_u32, u32);
    gdn_plan_free(p);
    if (s != GDN_OK) fail_msg("launch: %s: %s", gdn_status_name(s), target_log_text());
}
