/* fixture_plugin.c - a tiny plugin, built many times: each -D makes one thing about it wrong, older or newer.
 *
 * Its one operation, flag_clear, stores 7 through ptr[0], so that a test can tell that a launch arrived. What it did is
 * counted in a block of numbers that the extension "test.counts/1" hands out.
 *
 *   FIX_TARGET "name"   what it calls itself        FIX_MAGIC, FIX_MAJOR, FIX_MINOR, FIX_ID_SIZE, FIX_TABLE_SIZE  first words
 *   FIX_NULL_ENTRY      leaves that entry NULL      FIX_NO_SYMBOL, FIX_NULL_ANSWER   no query; a query that says NULL
 *   FIX_SANITIZER "x"   its kind                    FIX_NEWER   one entry more at the end of table and identity
 *   FIX_NO_TABLE        ops is NULL                 FIX_NEEDS_FOO   calls into libgdn_test_foo
 *   FIX_ARCHS "sm_90a"  asks for a GPU              FIX_UNLOADABLE  allows dlclose
 *   FIX_INIT_FAILS      init answers GDN_E_DRIVER   FIX_OLD_HEADER  built from the frozen 0.1 headers */
#include "gdn_op_rule.h"
#include "gdn_plugin.h"

#include <stdlib.h>
#include <string.h>

#ifndef FIX_TARGET
#define FIX_TARGET "good"
#endif
#ifndef FIX_MAGIC
#define FIX_MAGIC GDN_ABI_MAGIC
#endif
#ifndef FIX_MAJOR
#define FIX_MAJOR GDN_ABI_MAJOR
#endif
#ifndef FIX_MINOR
#define FIX_MINOR GDN_ABI_MINOR
#endif
#ifndef FIX_SANITIZER
#define FIX_SANITIZER "none"
#endif
#ifndef FIX_ARCHS
#define FIX_ARCHS ""
#endif
#ifdef FIX_UNLOADABLE
#define FIX_FLAGS GDN_F_UNLOADABLE
#else
#define FIX_FLAGS 0
#endif
#ifdef FIX_NEEDS_FOO
int gdn_test_foo(void);
#endif

typedef struct counts {
    uint32_t inits, finis, plans, destroys, launches;
    uint32_t host_size, args_size; /* what the host said */
} counts;
static counts counted;

struct gdn_ctx {
    const gdn_host *host;
};
struct gdn_plan {
    gdn_ctx *ctx;
};

static gdn_status fix_init(const gdn_host *host, int32_t ordinal, gdn_ctx **out, gdn_text *err) {
    (void)err;
    *out = NULL;
    (void)__atomic_fetch_add(&counted.inits, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&counted.host_size, host->struct_size, __ATOMIC_RELAXED);
    if (ordinal != 0) return GDN_E_ARG;
#ifdef FIX_INIT_FAILS
    return GDN_E_DRIVER;
#else
    gdn_ctx *ctx = malloc(sizeof *ctx);
    if (!ctx) return GDN_E_NOMEM;
    ctx->host = host;
    gdn_lever lever = { .struct_size = (uint32_t)sizeof lever };
    if (host->lever(host->user, "gdn_pipe", &lever) == GDN_OK) host->log(host->user, GDN_LOG_INFO, "fixture", lever.value);
    *out = ctx;
    return GDN_OK;
#endif
}

static void fix_fini(gdn_ctx *ctx) {
    if (ctx) (void)__atomic_fetch_add(&counted.finis, 1, __ATOMIC_RELAXED);
    free(ctx);
}

static gdn_status fix_plan(gdn_ctx *ctx, const gdn_shape *shape, void *stream, gdn_plan **out, gdn_text *err) {
    (void)stream;
    (void)err;
    *out = NULL;
    if (shape->op != GDN_OP_FLAG_CLEAR) return GDN_ABSENT;
    gdn_plan *plan = malloc(sizeof *plan);
    if (!plan) return GDN_E_NOMEM;
    plan->ctx = ctx;
    (void)__atomic_fetch_add(&counted.plans, 1, __ATOMIC_RELAXED);
    *out = plan;
    return GDN_OK;
}

static void fix_destroy(gdn_plan *plan) {
    if (plan) (void)__atomic_fetch_add(&counted.destroys, 1, __ATOMIC_RELAXED);
    free(plan);
}

__attribute__((unused)) /* FIX_NULL_ENTRY */
static gdn_status
fix_launch(const gdn_plan *plan, const gdn_launch_args *args) {
    (void)plan;
    (void)__atomic_fetch_add(&counted.launches, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&counted.args_size, args->struct_size, __ATOMIC_RELAXED);
    if (args->n_ptr != 1 || !args->ptr[0]) return GDN_E_ARG;
    *(uint32_t *)(uintptr_t)args->ptr[0] = 7;
    return GDN_OK;
}

static gdn_status answer(gdn_route *out) {
    const gdn_route r = { .struct_size = out->struct_size < sizeof r ? out->struct_size : (uint32_t)sizeof r,
                          .chosen = 1,
                          .entry = "fixture" };
    memcpy(out, &r, r.struct_size);
    return GDN_OK;
}

static gdn_status fix_explain(const gdn_plan *plan, uint32_t n, const uint32_t *u32, gdn_route *out) {
    (void)plan;
    (void)n;
    (void)u32;
    return answer(out);
}

static gdn_status fix_route(const gdn_host *host, uint32_t sm_count, const gdn_shape *shape, uint32_t n, const uint32_t *u32,
                            gdn_route *out, gdn_text *err) {
    (void)host;
    (void)sm_count;
    (void)shape;
    (void)n;
    (void)u32;
    (void)err;
    return answer(out);
}

static gdn_status fix_counters(const gdn_ctx *ctx, gdn_counter *out, uint32_t cap, uint32_t *n) {
    (void)ctx;
    *n = 1;
    if (cap) out[0] = (gdn_counter) { "fixture", __atomic_load_n(&counted.launches, __ATOMIC_RELAXED), GDN_OP_FLAG_CLEAR, 0 };
    return GDN_OK;
}

static const void *fix_extension(const char *id) {
    return strcmp(id, "test.counts/1") ? NULL : &counted;
}

typedef struct table { /* FIX_NEWER: what a later minor could append */
    gdn_vtable now;
    void (*later)(void);
} table;
typedef struct identity {
    gdn_plugin now;
    uint64_t later;
} identity;

#ifdef FIX_NEWER
enum { TABLE_SIZE = sizeof(table), ID_SIZE = sizeof(identity) };
#else
enum { TABLE_SIZE = sizeof(gdn_vtable), ID_SIZE = sizeof(gdn_plugin) };
#endif
#ifdef FIX_TABLE_SIZE
#define TABLE_SIZE_SAID (uint32_t)(FIX_TABLE_SIZE)
#else
#define TABLE_SIZE_SAID (uint32_t) TABLE_SIZE
#endif
#ifdef FIX_ID_SIZE
#define ID_SIZE_SAID (uint32_t)(FIX_ID_SIZE)
#else
#define ID_SIZE_SAID (uint32_t) ID_SIZE
#endif
#ifdef FIX_NULL_ENTRY
#define ENTRY_launch NULL
#else
#define ENTRY_launch fix_launch
#endif

__attribute__((unused)) /* FIX_NO_TABLE */
static const table ops = { { .struct_size = TABLE_SIZE_SAID,
                             .abi_minor = FIX_MINOR,
                             .init = fix_init,
                             .fini = fix_fini,
                             .plan = fix_plan,
                             .destroy = fix_destroy,
                             .launch = ENTRY_launch,
                             .explain = fix_explain,
                             .route = fix_route,
                             .counters = fix_counters,
                             .extension = fix_extension },
                           0 };
static const identity me = { { .magic = FIX_MAGIC,
                               .struct_size = ID_SIZE_SAID,
                               .abi_major = FIX_MAJOR,
                               .abi_minor = FIX_MINOR,
                               .target = FIX_TARGET,
                               .version = "0.0.1",
                               .build_id = "fixture",
                               .sanitizer = FIX_SANITIZER,
                               .archs = FIX_ARCHS,
                               .flags = FIX_FLAGS,
#ifdef FIX_NO_TABLE
                               .ops = NULL
#else
                               .ops = &ops.now
#endif
                             },
                             0 };

#ifdef FIX_NO_SYMBOL
__attribute__((visibility("default"))) const void *some_other_symbol(void);
const void *some_other_symbol(void) {
    return &me;
}
#else
const gdn_plugin *gdn_plugin_query(uint32_t host_major, uint32_t host_minor) {
    (void)host_major; /* answers whatever host asks, so that the host's own checks are seen */
    (void)host_minor;
#ifdef FIX_NEEDS_FOO
    if (gdn_test_foo()) return NULL;
#endif
#ifdef FIX_NULL_ANSWER
    return me.now.magic ? NULL : &me.now;
#else
    return &me.now;
#endif
}
#endif
