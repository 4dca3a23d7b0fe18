/* gpu_prefill_bench.h - a prefill plan on the mocked backend, what the tests of test_gpu_prefill*.c begin with. */
#ifndef GPU_PREFILL_BENCH_H
#define GPU_PREFILL_BENCH_H
#include "gpu_mock_shapes.h"
#include "mock_backend.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <string.h>

#define WU      "gated_delta_rule_recompute_wu"
#define FWD_O   "gated_delta_rule_chunk_fwd_o"
#define DELTA_H "gated_delta_rule_chunk_delta_h_"

typedef struct bench {
    mock m;
    const gdn_plugin *id;
    gdn_ctx *ctx;
    gdn_plan *plan;
    char text[512];
    gdn_text err;
} bench;

static inline gdn_rule_shape shape_of(void) {
    return (gdn_rule_shape) { .base = HEAD(gdn_rule_shape, GDN_OP_PREFILL),
                              .nk = 16,
                              .nv = 48,
                              .k_dim = 128,
                              .v_dim = 128,
                              .gate_form = GDN_GATE_LINEAR,
                              .state_type = GDN_F32,
                              .max_tokens = 8192,
                              .max_batch = 4 };
}

static inline void up(bench *b, const char *target, const char *const *levers) {
    memset(b, 0, sizeof *b);
    mock_init(&b->m, strcmp(target, "hopper") == 0 ? 90 : 121, 132);
    for (uint32_t i = 0; levers && levers[i]; i += 2) mock_lever(&b->m, levers[i], levers[i + 1]);
    b->err = (gdn_text) { b->text, sizeof b->text, 0 };
    b->id = mock_plugin(target);
    assert_non_null(b->id);
    const gdn_status st = b->id->ops->init(&b->m.host, 0, &b->ctx, &b->err);
    if (st) fail_msg("init: %s", b->text);
}
static inline gdn_status make(bench *b, const gdn_rule_shape *s) {
    b->id->ops->destroy(b->plan);
    b->plan = NULL;
    return b->id->ops->plan(b->ctx, &s->base, NULL, &b->plan, &b->err);
}
static inline void down(bench *b) {
    b->id->ops->destroy(b->plan);
    b->id->ops->fini(b->ctx);
    assert_int_equal(mock_loaded(&b->m), 0);
}
static inline gdn_status launch(bench *b, uint64_t key, uint64_t more, uint32_t batch, uint32_t len) {
    uint64_t ptr[GDN_PREFILL_N_PTR] = { 0 };
    for (uint32_t i = 0; i < GDN_PREFILL_P_CU_SEQLENS; i++) ptr[i] = AT(i + 1);
    ptr[GDN_PREFILL_P_KEY] = key;
    ptr[GDN_PREFILL_P_WORKSPACE] = AT(100);
    for (uint32_t i = 0; i < GDN_PREFILL_N_PTR; i++)
        if (more >> i & 1) ptr[i] = AT(i + 1);
    const uint32_t u32[] = { batch, len };
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_PREFILL_N_PTR, 2, 0, (void *)0x77, ptr, u32 };
    b->m.launches = 0;
    return b->id->ops->launch(b->plan, &args);
}
static inline void ran(const bench *b, uint32_t i, const char *entry, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t block,
                       uint32_t smem) {
    const mock_launch *l = &b->m.history[i];
    assert_true(i < b->m.launches);
    assert_string_equal(l->function->entry, entry);
    const uint32_t got[] = { l->dims.grid[0], l->dims.grid[1], l->dims.grid[2], l->dims.block[0], l->dims.smem_bytes };
    const uint32_t want[] = { gx, gy, gz, block, smem };
    for (uint32_t k = 0; k < 5; k++)
        if (got[k] != want[k]) fail_msg("%s: geometry word %u is %u, expected %u", entry, k, got[k], want[k]);
}

#endif
