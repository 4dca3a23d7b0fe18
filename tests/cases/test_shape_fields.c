/* test_shape_fields.c - each field of a shape outside its range: the status, and a text that names the field. */
#include "target.h"
#include <string.h>

#define RULE(op_)                                                                                                                     \
    {                                                                                                                                 \
        .base = SHAPE_BASE(gdn_rule_shape, op_, GDN_F32), .nk = 2, .nv = 4, .k_dim = 128, .v_dim = 128, .gate_form = GDN_GATE_LINEAR, \
        .state_addr = GDN_STATE_POOL, .state_type = GDN_F32, .max_tokens = 8, .max_batch = 2, .max_rows = 4, .stash_seqs = 2          \
    }
static const gdn_rule_shape prefill = RULE(GDN_OP_PREFILL), decode = RULE(GDN_OP_DECODE), verify = RULE(GDN_OP_VERIFY),
                            woa = RULE(GDN_OP_VERIFY_WOA), fold = RULE(GDN_OP_FOLD);
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
static const gdn_norm_shape norm = { .base = SHAPE_BASE(gdn_norm_shape, GDN_OP_NORM, GDN_F32),
                                     .dim = 16,
                                     .act = GDN_NORM_SILU,
                                     .weight_type = GDN_F32,
                                     .max_rows = 2,
                                     .eps = 1e-6f };
static const gdn_state_shape copy = { .base = SHAPE_BASE(gdn_state_shape, GDN_OP_STATE_COPY, 0), .bytes = 64, .max_count = 2 };
static const gdn_state_shape zero = { .base = SHAPE_BASE(gdn_state_shape, GDN_OP_STATE_ZERO, 0), .bytes = 64, .max_count = 2 };

typedef struct field_row {
    uint32_t at, value; /* byte of a u32 field */
    gdn_status status;
    const char *part;
} field_row;
#define F(type, field, value, status, part) \
    { (uint32_t) offsetof(type, field), value, status, part }

static void try_fields(const void *shape, uint32_t size, const field_row *f, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint64_t room[64] = { 0 };
        memcpy(room, shape, size);
        memcpy((uint8_t *)room + f[i].at, &f[i].value, 4);
        plan_fails(room, f[i].status, f[i].part);
    }
}

static void fields_of_the_rule_shape(void **state) {
    (void)state;
    static const field_row f[] = {
        F(gdn_rule_shape, nk, 0, GDN_E_ARG, "nk"),
        F(gdn_rule_shape, nk, 3, GDN_E_ARG, "nv is 4, not a multiple of nk, 3"),
        F(gdn_rule_shape, nv, 0, GDN_E_ARG, "nv"),
        F(gdn_rule_shape, k_dim, 0, GDN_E_ARG, "k_dim"),
        F(gdn_rule_shape, k_dim, 72, GDN_REFUSED, "k_dim"),
        F(gdn_rule_shape, v_dim, 96, GDN_REFUSED, "v_dim"),
        F(gdn_rule_shape, qk_stride, 255, GDN_E_ARG, "qk_stride"),
        F(gdn_rule_shape, v_stride, 511, GDN_E_ARG, "v_stride"),
        F(gdn_rule_shape, gb_stride, 3, GDN_E_ARG, "gb_stride"),
        F(gdn_rule_shape, gate_form, 0, GDN_E_ARG, "gate_form"),
        F(gdn_rule_shape, gate_form, 3, GDN_E_ARG, "gate_form"),
        F(gdn_rule_shape, head_map, 2, GDN_E_ARG, "head_map"),
        F(gdn_rule_shape, state_layout, 2, GDN_E_ARG, "state_layout"),
        F(gdn_rule_shape, state_addr, 3, GDN_E_ARG, "state_addr"),
        F(gdn_rule_shape, state_type, 0, GDN_E_ARG, "state_type"),
        F(gdn_rule_shape, state_type, GDN_F16, GDN_REFUSED, "state is not f32"),
        F(gdn_rule_shape, max_batch, 0, GDN_E_ARG, "max_batch"),
        F(gdn_rule_shape, scale, 0x7f800000u, GDN_E_ARG, "scale"),
        F(gdn_rule_shape, scale, 0x7fc00000u, GDN_E_ARG, "scale"),
        F(gdn_rule_shape, state_stride, 5, GDN_E_ARG, "state_stride"),
    };
    /* B200: 16 key and 48 value heads over 3 ranks; what a rank is left with does not divide. */
    static const field_row ranks[] = { F(gdn_rule_shape, nk, 5, GDN_E_ARG, "nv is 16, not a multiple of nk, 5"),
                                       F(gdn_rule_shape, nk, 6, GDN_E_ARG, "nv is 16, not a multiple of nk, 6") };
    gdn_rule_shape third = prefill;
    third.nv = 16;
    try_fields(&third, sizeof third, ranks, N_OF(ranks));
    try_fields(&prefill, sizeof prefill, f, N_OF(f));
    try_fields(&decode, sizeof decode, f, N_OF(f));
    try_fields(&verify, sizeof verify, f, N_OF(f));
    static const field_row p[] = { F(gdn_rule_shape, max_tokens, 0, GDN_E_ARG, "max_tokens"),
                                   F(gdn_rule_shape, ckpt_every, 65, GDN_E_ARG, "ckpt_every"),
                                   F(gdn_rule_shape, offsets, 3, GDN_E_ARG, "offsets") };
    try_fields(&prefill, sizeof prefill, p, N_OF(p));
    static const field_row v[] = { F(gdn_rule_shape, hi_capacity, 2, GDN_E_ARG, "hi_capacity"),
                                   F(gdn_rule_shape, max_rows, 0, GDN_REFUSED, "rows is 0"),
                                   F(gdn_rule_shape, max_rows, 17, GDN_REFUSED, "rows is above 16") };
    try_fields(&verify, sizeof verify, v, N_OF(v));
    static const field_row w[] = { F(gdn_rule_shape, stash_stride, 5, GDN_E_ARG, "stash_stride"), F(gdn_rule_shape, nk, 3, GDN_E_ARG, "nk"),
                                   F(gdn_rule_shape, state_type, 0, GDN_E_ARG, "state_type"),
                                   F(gdn_rule_shape, max_batch, 0, GDN_E_ARG, "max_batch") };
    try_fields(&woa, sizeof woa, w, N_OF(w));
    try_fields(&fold, sizeof fold, w, N_OF(w));
    gdn_rule_shape s = verify;
    s.state_addr = GDN_STATE_TABLE;
    s.slab_entries = 1;
    plan_fails(&s, GDN_E_ARG, "slab_entries");
}

static void fields_of_the_other_shapes(void **state) {
    (void)state;
    static const field_row c[] = { F(gdn_conv_shape, channels, 0, GDN_E_ARG, "channels"),
                                   F(gdn_conv_shape, width, 9, GDN_E_ARG, "width"),
                                   F(gdn_conv_shape, state_len, 2, GDN_E_ARG, "state_len"),
                                   F(gdn_conv_shape, x_stride, 7, GDN_E_ARG, "x_stride"),
                                   F(gdn_conv_shape, silu, 2, GDN_E_ARG, "silu"),
                                   F(gdn_conv_shape, weight_type, 0, GDN_E_ARG, "weight_type"),
                                   F(gdn_conv_shape, pad_, 1, GDN_E_ARG, "pad_"),
                                   F(gdn_conv_shape, slot_stride, 5, GDN_E_ARG, "slot_stride"),
                                   F(gdn_conv_shape, max_tokens, 0, GDN_E_ARG, "max_tokens"),
                                   F(gdn_conv_shape, max_batch, 0, GDN_E_ARG, "max_batch") };
    try_fields(&conv, sizeof conv, c, N_OF(c));
    try_fields(&fused, sizeof fused, c, N_OF(c));
    static const field_row u[] = { F(gdn_conv_shape, channels, 255, GDN_E_ARG, "channels"), F(gdn_conv_shape, silu, 0, GDN_E_ARG, "silu"),
                                   F(gdn_conv_shape, q_stride, 63, GDN_E_ARG, "q_stride") };
    try_fields(&fused, sizeof fused, u, N_OF(u));
    static const field_row g[] = { F(gdn_gates_shape, nv, 0, GDN_E_ARG, "nv"),
                                   F(gdn_gates_shape, gate_form, 0, GDN_E_ARG, "gate_form"),
                                   F(gdn_gates_shape, param_type, 0, GDN_E_ARG, "param_type"),
                                   F(gdn_gates_shape, a_stride, 3, GDN_E_ARG, "a_stride"),
                                   F(gdn_gates_shape, gate_stride, 7, GDN_E_ARG, "gate_stride"),
                                   F(gdn_gates_shape, vheads_per_group, 3, GDN_E_ARG, "vheads_per_group") };
    try_fields(&gates, sizeof gates, g, N_OF(g));
    static const field_row n[] = { F(gdn_norm_shape, dim, 0, GDN_E_ARG, "dim"),
                                   F(gdn_norm_shape, act, 0, GDN_E_ARG, "act"),
                                   F(gdn_norm_shape, eps, 0, GDN_E_ARG, "eps"),
                                   F(gdn_norm_shape, weight_type, 0, GDN_E_ARG, "weight_type"),
                                   F(gdn_norm_shape, x_stride, 15, GDN_E_ARG, "x_stride"),
                                   F(gdn_norm_shape, z_stride, 15, GDN_E_ARG, "z_stride") };
    try_fields(&norm, sizeof norm, n, N_OF(n));
    static const field_row s[] = { F(gdn_state_shape, bytes, 0, GDN_E_ARG, "bytes"),
                                   F(gdn_state_shape, dst_stride, 63, GDN_E_ARG, "dst_stride"),
                                   F(gdn_state_shape, max_count, 0, GDN_E_ARG, "max_count"),
                                   F(gdn_state_shape, pad_, 1, GDN_E_ARG, "pad_") };
    try_fields(&copy, sizeof copy, s, N_OF(s));
    try_fields(&zero, sizeof zero, s, N_OF(s));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_of_the_rule_shape),
        cmocka_unit_test(fields_of_the_other_shapes),
    };
    return cmocka_run_group_tests_name("shape fields", tests, target_setup, target_teardown);
}
