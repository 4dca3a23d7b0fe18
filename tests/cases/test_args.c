/* test_args.c - argument errors: every operation, each required pointer NULL, each count above its maximum (explain says so
 * too), pointers that the plan has no use for, shapes of wrong size, with unknown flags or forgotten fields. The status is an error, the
 * text names the field, nothing is written. */
#include "numeric.h"
#include "target.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct op_row {
    const char *name;
    uint32_t op, n_ptr, n_u32;
    const void *shape;
    uint32_t shape_size;
    const char *const *ptr_name, *const *u32_name;
    const uint32_t *need; /* GDN_REQ or GDN_OPT a pointer */
    const uint32_t *u32;  /* counts of a launch with work */
} op_row;

#define NAME_(ID, name, need) name,
#define NEED_(ID, name, need) need,
#define LISTS(OP)                                                     \
    static const char *const OP##_ptr[] = { GDN_##OP##_PTRS(NAME_) }; \
    static const uint32_t OP##_need[] = { GDN_##OP##_PTRS(NEED_) }
#define U32S(OP) static const char *const OP##_u32n[] = { GDN_##OP##_U32S(NAME_) }
LISTS(PREFILL);
LISTS(DECODE);
LISTS(VERIFY);
LISTS(VERIFY_WOA);
LISTS(FOLD);
LISTS(ROUND);
LISTS(FLAG_CLEAR);
LISTS(CONV1D);
LISTS(CONV_FUSED);
LISTS(GATES);
LISTS(BA_GATES);
LISTS(BA_GEMV);
LISTS(NORM);
LISTS(STATE_COPY);
LISTS(STATE_ZERO);
LISTS(W4A4_QUANT);
LISTS(W4A4_GEMV);
U32S(PREFILL);
U32S(DECODE);
U32S(VERIFY);
U32S(VERIFY_WOA);
U32S(FOLD);
U32S(ROUND);
U32S(CONV1D);
U32S(CONV_FUSED);
U32S(GATES);
U32S(BA_GATES);
U32S(NORM);
U32S(STATE_COPY);
U32S(STATE_ZERO);
U32S(W4A4_QUANT);
U32S(W4A4_GEMV);

#define RULE(op_)                                                                                                                     \
    {                                                                                                                                 \
        .base = SHAPE_BASE(gdn_rule_shape, op_, GDN_F32), .nk = 2, .nv = 4, .k_dim = 128, .v_dim = 128, .gate_form = GDN_GATE_LINEAR, \
        .state_addr = GDN_STATE_POOL, .state_type = GDN_F32, .max_tokens = 8, .max_batch = 2, .max_rows = 4, .stash_seqs = 2          \
    }
static const gdn_rule_shape prefill = RULE(GDN_OP_PREFILL), decode = RULE(GDN_OP_DECODE), verify = RULE(GDN_OP_VERIFY),
                            woa = RULE(GDN_OP_VERIFY_WOA), fold = RULE(GDN_OP_FOLD), round_ = RULE(GDN_OP_ROUND);
static const gdn_flag_shape flag = { SHAPE_BASE(gdn_flag_shape, GDN_OP_FLAG_CLEAR, 0) };
static const gdn_conv_shape conv = { .base = SHAPE_BASE(gdn_conv_shape, GDN_OP_CONV1D, GDN_F32),
                                     .channels = 8,
                                     .width = 4,
                                     .weight_type = GDN_F32,
                                     .max_tokens = 8,
                                     .max_batch = 2 };
static const gdn_conv_shape fused = { .base = SHAPE_BASE(gdn_conv_shape, GDN_OP_CONV_FUSED, GDN_F32),
                                      .channels = 256,
                                      .width = 4,
                                      .silu = 1,
                                      .weight_type = GDN_F32,
                                      .max_tokens = 8,
                                      .max_batch = 2,
                                      .nk = 1,
                                      .nv = 2,
                                      .k_dim = 64,
                                      .v_dim = 64 };
static const gdn_gates_shape gates = {
    .base = SHAPE_BASE(gdn_gates_shape, GDN_OP_GATES, GDN_F32), .nv = 4, .gate_form = GDN_GATE_LINEAR, .param_type = GDN_F32, .max_rows = 2
};
static const gdn_ba_shape ba = { .base = SHAPE_BASE(gdn_ba_shape, GDN_OP_BA_GATES, GDN_F32),
                                 .N = 8,
                                 .K = 64,
                                 .nv = 4,
                                 .vheads_per_group = 2,
                                 .weight_type = GDN_F32,
                                 .max_m = 2 };
static const gdn_ba_shape gemv = {
    .base = SHAPE_BASE(gdn_ba_shape, GDN_OP_BA_GEMV, GDN_F32), .N = 8, .K = 64, .nv = 4, .vheads_per_group = 2, .weight_type = GDN_F32
};
static const gdn_norm_shape norm = { .base = SHAPE_BASE(gdn_norm_shape, GDN_OP_NORM, GDN_F32),
                                     .dim = 16,
                                     .act = GDN_NORM_SILU,
                                     .weight_type = GDN_F32,
                                     .max_rows = 2,
                                     .eps = 1e-6f };
static const gdn_state_shape copy = { .base = SHAPE_BASE(gdn_state_shape, GDN_OP_STATE_COPY, 0), .bytes = 64, .max_count = 2 };
static const gdn_state_shape zero = { .base = SHAPE_BASE(gdn_state_shape, GDN_OP_STATE_ZERO, 0), .bytes = 64, .max_count = 2 };
static const gdn_w4a4_shape quant = { .base = SHAPE_BASE(gdn_w4a4_shape, GDN_OP_W4A4_QUANT, GDN_F32), .K = 128, .max_m = 2 };
static const gdn_w4a4_shape w4a4 = { .base = SHAPE_BASE(gdn_w4a4_shape, GDN_OP_W4A4_GEMV, GDN_F32), .N = 16, .K = 128, .max_m = 2 };

static const uint32_t two_four[] = { 2, 4 }, four_two[] = { 4, 2 }, two[] = { 2 }, scale_two[] = { 0x3f800000u, 2 };
#define ROW(OP, shape, u32, u32n, n_u32) \
    { #OP, GDN_OP_##OP, GDN_##OP##_N_PTR, n_u32, &shape, sizeof shape, OP##_ptr, u32n, OP##_need, u32 }
static const op_row rows[] = {
    ROW(PREFILL, prefill, two_four, PREFILL_u32n, 2),
    ROW(DECODE, decode, two, DECODE_u32n, 1),
    ROW(VERIFY, verify, four_two, VERIFY_u32n, 2),
    ROW(VERIFY_WOA, woa, four_two, VERIFY_WOA_u32n, 2),
    ROW(FOLD, fold, four_two, FOLD_u32n, 2),
    ROW(ROUND, round_, four_two, ROUND_u32n, 2),
    ROW(FLAG_CLEAR, flag, NULL, NULL, 0),
    ROW(CONV1D, conv, two_four, CONV1D_u32n, 2),
    ROW(CONV_FUSED, fused, two_four, CONV_FUSED_u32n, 2),
    ROW(GATES, gates, two, GATES_u32n, 1),
    ROW(BA_GATES, ba, two, BA_GATES_u32n, 1),
    ROW(BA_GEMV, gemv, NULL, NULL, 0),
    ROW(NORM, norm, two, NORM_u32n, 1),
    ROW(STATE_COPY, copy, two, STATE_COPY_u32n, 1),
    ROW(STATE_ZERO, zero, two, STATE_ZERO_u32n, 1),
    ROW(W4A4_QUANT, quant, two, W4A4_QUANT_u32n, 1),
    ROW(W4A4_GEMV, w4a4, scale_two, W4A4_GEMV_u32n, 2),
};

/* Every pointer goes to its own part of one arena of valid zeros (slots 0, flag 0, offsets 0): big enough for any of them. */
enum { PART = 1 << 20 };
static uint8_t *arena;

static void fill_pointers(uint64_t *ptr, const op_row *r) {
    for (uint32_t i = 0; i < r->n_ptr; i++)
        ptr[i] = r->need[i] == GDN_REQ || strcmp(r->ptr_name[i], "in_tab") == 0 ? addr_of(arena + (uint64_t)i * PART) : 0;
    if (strcmp(r->name, "FOLD") == 0) ptr[GDN_FOLD_P_STASH] = addr_of(arena + (uint64_t)GDN_FOLD_P_STASH * PART);
}

static int make_arena(void **state) {
    arena = calloc(GDN_ROUND_N_PTR + 1u, PART);
    return arena && target_setup(state) == 0 ? 0 : -1;
}

static int free_arena(void **state) {
    free(arena);
    return target_teardown(state);
}

static bool arena_is_zero(void) {
    const uint64_t *w = (const uint64_t *)(const void *)arena;
    for (uint64_t i = 0; i < (GDN_ROUND_N_PTR + 1ull) * PART / 8; i++) {
        if (w[i]) return false;
    }
    return true;
}

static void every_required_pointer(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_OF(rows); i++) {
        const op_row *r = &rows[i];
        gdn_hplan *p = plan_ok(r->shape);
        for (uint32_t k = 0; k < r->n_ptr; k++) {
            uint64_t ptr[24];
            fill_pointers(ptr, r);
            if (r->need[k] != GDN_REQ) continue;
            ptr[k] = 0;
            memset(arena, 0, (GDN_ROUND_N_PTR + 1ull) * PART);
            target_log_clear();
            const gdn_status st = launch(p, r->n_ptr, ptr, r->n_u32, r->u32);
            const bool named = target_logged(r->ptr_name[k]) || (r->op == GDN_OP_VERIFY_WOA && target_logged(GDN_WOA_NULL_TEXT));
            if (st != GDN_E_ARG || !named)
                fail_msg("%s without %s: %s; log: %s", r->name, r->ptr_name[k], gdn_status_name(st), target_log_text());
            assert_true(arena_is_zero());
        }
        gdn_plan_free(p);
    }
}

/* The control of the test above: with all pointers the same launches are done (and do write). */
static void with_all_pointers_the_launches_are_done(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_OF(rows); i++) {
        const op_row *r = &rows[i];
        gdn_hplan *p = plan_ok(r->shape);
        uint64_t ptr[24];
        fill_pointers(ptr, r);
        memset(arena, 0, (GDN_ROUND_N_PTR + 1ull) * PART);
        target_log_clear();
        /* Slots 0 and 0 would be written twice: the second is padding. */
        for (uint32_t k = 0; k < r->n_ptr; k++) {
            if (strstr(r->ptr_name[k], "_tab") && strcmp(r->ptr_name[k], "na_tab") != 0 && ptr[k]) ((int32_t *)(uintptr_t)ptr[k])[1] = -1;
            if (strstr(r->ptr_name[k], "_slots") && ptr[k]) ((int32_t *)(uintptr_t)ptr[k])[1] = -1;
        }
        const gdn_status st = launch(p, r->n_ptr, ptr, r->n_u32, r->u32);
        if (st != GDN_OK) fail_msg("%s: %s; log: %s", r->name, gdn_status_name(st), target_log_text());
        gdn_plan_free(p);
    }
}

static void every_count_above_its_maximum(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_OF(rows); i++) {
        const op_row *r = &rows[i];
        gdn_hplan *p = plan_ok(r->shape);
        for (uint32_t k = 0; k < r->n_u32; k++) {
            if (strcmp(r->u32_name[k], "scale2") == 0) continue;
            static const uint32_t above[] = { 9, 65, 0xffffffffu };
            for (uint32_t j = 0; j < N_OF(above); j++) {
                uint64_t ptr[24];
                uint32_t u32[4] = { 0 };
                fill_pointers(ptr, r);
                memcpy(u32, r->u32, r->n_u32 * 4);
                u32[k] = above[j];
                memset(arena, 0, (GDN_ROUND_N_PTR + 1ull) * PART);
                target_log_clear();
                const gdn_status st = launch(p, r->n_ptr, ptr, r->n_u32, u32);
                /* write-on-accept has its own words for a wrong number of rows or sequences */
                const bool refused = st == GDN_REFUSED && (r->op == GDN_OP_VERIFY_WOA || r->op == GDN_OP_ROUND);
                gdn_route route = { .struct_size = (uint32_t)sizeof route };
                assert_int_equal(gdn_explain(p, r->n_u32, u32, &route), st); /* explain answers what launch does */
                if (!(st == GDN_E_ARG || refused) || !target_logged(r->u32_name[k]))
                    fail_msg("%s with %s %u: %s; log: %s", r->name, r->u32_name[k], above[j], gdn_status_name(st), target_log_text());
                assert_true(arena_is_zero());
            }
        }
        gdn_plan_free(p);
    }
}

/* Outputs at the place of an input, and one byte into it: refused by both names, nothing is written (test_call_overlap.c has every pair).
 */
static void memory_that_overlaps(void **state) {
    (void)state;
    static const struct {
        const char *op, *written, *read;
    } pairs[] = { { "PREFILL", "output", "query" }, { "DECODE", "output", "value" }, { "VERIFY", "out", "k" },
                  { "CONV1D", "out", "x" },         { "CONV_FUSED", "out_k", "x" },  { "GATES", "out", "a" },
                  { "BA_GATES", "gate_out", "A" },  { "NORM", "out", "z" },          { "STATE_ZERO", "dst", "dst_slots" },
                  { "W4A4_QUANT", "Aq", "A" },      { "W4A4_GEMV", "C", "Bq" },      { "ROUND", "stash", "pending_stash" } };
    for (uint32_t i = 0; i < 2 * N_OF(pairs); i++) {
        const op_row *r = rows;
        uint32_t to = 0, from = 0;
        uint64_t ptr[24];
        while (strcmp(r->name, pairs[i / 2].op) != 0) r++;
        while (strcmp(r->ptr_name[to], pairs[i / 2].written) != 0) to++;
        while (strcmp(r->ptr_name[from], pairs[i / 2].read) != 0) from++;
        gdn_hplan *p = plan_ok(r->shape);
        fill_pointers(ptr, r);
        ptr[to] = ptr[from] + i % 2;
        memset(arena, 0, (GDN_ROUND_N_PTR + 1ull) * PART);
        target_log_clear();
        const gdn_status st = launch(p, r->n_ptr, ptr, r->n_u32, r->u32);
        if (st != GDN_E_ARG || !target_logged("overlaps") || !target_logged(pairs[i / 2].written) || !target_logged(pairs[i / 2].read))
            fail_msg("%s: %s; log: %s", r->name, gdn_status_name(st), target_log_text());
        assert_true(arena_is_zero());
        gdn_plan_free(p);
    }
}

/* What a plan has no use for is refused by name, not ignored: offsets, slots, checkpoints, and what is by sequence. */
static void pointers_without_a_use(void **state) {
    (void)state;
    static const char *const optional[] = { "cu_seqlens", "cu_rows", "in_tab", "out_tab", "ckpt", "seq_ids", "record" };
    uint32_t seen = 0;
    for (uint32_t i = 0; i < N_OF(rows); i++) {
        const op_row *r = &rows[i];
        for (uint32_t k = 0; k < r->n_ptr; k++)
            for (uint32_t j = 0; j < N_OF(optional); j++) {
                if (strcmp(r->ptr_name[k], optional[j]) != 0) continue;
                union {
                    gdn_shape base;
                    gdn_rule_shape rule;
                    gdn_conv_shape conv;
                } s;
                memcpy(&s, r->shape, r->shape_size);
                const bool slots = j == 2 || j == 3;
                if (slots) s.rule.state_addr = GDN_STATE_CONTIGUOUS;
                if (slots && r->op == GDN_OP_VERIFY) s.rule.max_batch = 1;
                gdn_hplan *p = plan_ok(&s);
                uint64_t ptr[24];
                uint32_t u32[4] = { 0 };
                fill_pointers(ptr, r);
                if (r->n_u32) memcpy(u32, r->u32, r->n_u32 * 4);
                if (slots && r->op == GDN_OP_VERIFY) u32[GDN_VERIFY_U_BATCH] = 1;
                for (uint32_t n = 0; slots && n < r->n_ptr; n++)
                    if (strcmp(r->ptr_name[n], "in_tab") == 0) ptr[n] = 0;
                ptr[k] = addr_of(arena + (uint64_t)k * PART);
                memset(arena, 0, (GDN_ROUND_N_PTR + 1ull) * PART);
                target_log_clear();
                const gdn_status st = launch(p, r->n_ptr, ptr, r->n_u32, u32);
                if (st != GDN_E_ARG || !target_logged(optional[j]))
                    fail_msg("%s with %s: %s; log: %s", r->name, optional[j], gdn_status_name(st), target_log_text());
                assert_true(arena_is_zero());
                gdn_plan_free(p);
                seen++;
            }
    }
    assert_int_equal(seen, 4 + 2 + 5 + 3 + 3 + 3 + 1 + 1 +
                               1); /* prefill, decode, verify, write-on-accept, fold, round, clear, both convolutions */
}

/* B126: no sequences, rows or pairs, and not one pointer: done, and no launch is counted. */
static void B126_nothing_to_do_with_NULL_pointers(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_OF(rows); i++) {
        const op_row *r = &rows[i];
        if (r->n_u32 == 0) continue;
        gdn_hplan *p = plan_ok(r->shape);
        const uint64_t null[24] = { 0 };
        const uint32_t last = r->n_u32 - 1; /* rows, M, count; batch: the first of prefill and conv, the last of verify */
        const bool batch_first = strcmp(r->u32_name[0], "batch") == 0;
        uint32_t u32[4] = { 0 };
        memcpy(u32, r->u32, r->n_u32 * 4);
        u32[batch_first ? 0 : last] = 0;
        gdn_counter before[160], after[160];
        uint32_t nb = 0, na = 0;
        assert_int_equal(gdn_counters(target(), before, 160, &nb), GDN_OK);
        target_log_clear();
        const gdn_status st = launch(p, r->n_ptr, null, r->n_u32, u32);
        if (st != GDN_OK) fail_msg("%s: %s; log: %s", r->name, gdn_status_name(st), target_log_text());
        assert_int_equal(gdn_counters(target(), after, 160, &na), GDN_OK);
        for (uint32_t k = 0; k < na && k < nb; k++) assert_int_equal(before[k].count, after[k].count);
        gdn_plan_free(p);
    }
}

static void sizes_and_flags_of_shapes(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_OF(rows); i++) {
        const op_row *r = &rows[i];
        uint64_t room[64] = { 0 };
        gdn_shape *s = (gdn_shape *)(void *)room;
        static const uint32_t bad[] = { 0, 8, 15 };
        for (uint32_t k = 0; k < N_OF(bad); k++) {
            memcpy(s, r->shape, r->shape_size);
            s->struct_size = bad[k];
            plan_fails(s, GDN_E_ABI, "struct_size");
        }
        memcpy(s, r->shape, r->shape_size);
        s->struct_size = r->shape_size + 8; /* a newer caller's, with nothing new set */
        gdn_plan_free(plan_ok(s));
        s->struct_size = r->shape_size;
        s->flags = 0x80000000u;
        plan_fails(s, GDN_E_ARG, "flags");
        memcpy(s, r->shape, r->shape_size);
        const bool looks = r->op != GDN_OP_STATE_COPY && r->op != GDN_OP_STATE_ZERO && r->op != GDN_OP_FLAG_CLEAR && r->op != GDN_OP_FOLD;
        for (uint32_t t = 0; looks && t < 3; t++) {
            static const uint32_t types[] = { 0, GDN_F16, 7 };
            s->act_type = types[t];
            gdn_hplan *p;
            char text[256];
            const gdn_status st = plan_try(s, &p, text, sizeof text);
            if (!(st == GDN_E_ARG || st == GDN_REFUSED) || !strstr(text, "act_type"))
                fail_msg("%s act_type %u: %s: %s", r->name, types[t], gdn_status_name(st), text);
        }
    }
    gdn_shape none = { .struct_size = sizeof none, .op = 99, .act_type = GDN_F32 };
    plan_fails(&none, GDN_E_ARG, "99");
    none.op = 0;
    plan_fails(&none, GDN_E_ARG, "op");
}

/* A request that an operation could not fulfil is refused; sizes of what it does not have are those of another operation's plan. */
static void fields_of_other_operations(void **state) {
    (void)state;
    static const gdn_rule_shape *const shapes[] = { &decode, &verify, &woa, &fold };
    for (uint32_t i = 0; i < N_OF(shapes); i++) {
        gdn_rule_shape s = *shapes[i];
        s.ckpt_every = 64;
        plan_fails(&s.base, GDN_E_ARG, "ckpt_every is 64, only prefill keeps states");
        s.ckpt_every = 0;
        s.max_tokens = 77;
        s.hi_capacity = s.slab_entries = 99;
        gdn_plan_free(plan_ok(&s.base));
    }
    gdn_rule_shape s = decode;
    s.offsets = GDN_OFFSETS_I32;
    plan_fails(&s.base, GDN_E_ARG, "takes no offsets");
    gdn_conv_shape c = conv;
    c.nk = 1;
    plan_fails(&c.base, GDN_E_ARG, "are for conv_fused");
    gdn_w4a4_shape q = quant;
    q.N = 16;
    gdn_plan_free(plan_ok(&q.base)); /* it does not look */
    gdn_state_shape z = zero;
    z.src_stride = z.src_slots = 1; /* shorter than a state: not looked at */
    z.bytes = 64;
    gdn_plan_free(plan_ok(&z.base));
}

static void launch_arguments_themselves(void **state) {
    (void)state;
    gdn_hplan *p = plan_ok(&decode);
    uint64_t ptr[24];
    fill_pointers(ptr, &rows[1]);
    const uint32_t one = 1;
    const gdn_launch_args good = { .struct_size = sizeof good, .n_ptr = rows[1].n_ptr, .n_u32 = 1, .ptr = ptr, .u32 = &one };
    gdn_launch_args a = good;
    a.flags = 1;
    assert_int_equal(gdn_launch(p, &a), GDN_E_ARG);
    a = good;
    a.struct_size = 8;
    assert_true(gdn_launch(p, &a) < 0);
    a = good;
    a.n_u32 = 0;
    assert_int_equal(gdn_launch(p, &a), GDN_E_ARG);
    a = good;
    a.ptr = NULL;
    assert_true(gdn_launch(p, &a) < 0);
    assert_true(gdn_launch(p, NULL) < 0);
    assert_true(gdn_launch(NULL, &good) < 0);
    assert_int_equal(gdn_launch(p, &good), GDN_OK);
    gdn_plan_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_required_pointer),        cmocka_unit_test(with_all_pointers_the_launches_are_done),
        cmocka_unit_test(every_count_above_its_maximum), cmocka_unit_test(B126_nothing_to_do_with_NULL_pointers),
        cmocka_unit_test(sizes_and_flags_of_shapes),     cmocka_unit_test(launch_arguments_themselves),
        cmocka_unit_test(pointers_without_a_use),        cmocka_unit_test(memory_that_overlaps),
        cmocka_unit_test(fields_of_other_operations),
    };
    return cmocka_run_group_tests_name("arguments", tests, make_arena, free_arena);
}
