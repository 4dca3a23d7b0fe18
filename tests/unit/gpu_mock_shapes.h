/* gpu_mock_shapes.h - the shapes that the mock tests of the GPU plugins share. */
#ifndef GDN_TESTS_GPU_MOCK_SHAPES_H
#define GDN_TESTS_GPU_MOCK_SHAPES_H

#include "gdn_op_conv.h"
#include "gdn_op_gates.h"
#include "gdn_op_norm.h"
#include "gdn_op_rule.h"
#include "gdn_op_state.h"

/* An address for pointer n - 1: far from the next, whatever the shape. */
#define AT(n) ((uint64_t)(n) << 40)

#define HEAD(type, op) \
    { (uint32_t)sizeof(type), (op), 0, GDN_BF16 }

static inline gdn_ba_shape mock_ba(uint32_t op) {
    return (gdn_ba_shape) { .base = HEAD(gdn_ba_shape, op),
                            .N = 96,
                            .K = 5120,
                            .nv = 48,
                            .vheads_per_group = 3,
                            .weight_type = GDN_BF16,
                            .max_m = op == GDN_OP_BA_GATES ? 8192 : 0 };
}
static inline gdn_gates_shape mock_gates(void) {
    return (gdn_gates_shape) {
        .base = HEAD(gdn_gates_shape, GDN_OP_GATES), .nv = 48, .gate_form = GDN_GATE_LINEAR, .param_type = GDN_F32, .max_rows = 8192
    };
}
static inline gdn_conv_shape mock_conv(uint32_t op) {
    gdn_conv_shape s = { .base = HEAD(gdn_conv_shape, op),
                         .channels = 10240,
                         .width = 4,
                         .state_len = 7,
                         .silu = 1,
                         .weight_type = GDN_BF16,
                         .max_tokens = 8192,
                         .max_batch = 64,
                         .num_slots = 100 };
    if (op == GDN_OP_CONV_FUSED) s.nk = 16, s.nv = 48, s.k_dim = s.v_dim = 128;
    return s;
}
static inline gdn_norm_shape mock_norm(void) {
    return (gdn_norm_shape) { .base = HEAD(gdn_norm_shape, GDN_OP_NORM),
                              .dim = 128,
                              .heads = 48,
                              .act = GDN_NORM_SILU,
                              .weight_type = GDN_BF16,
                              .max_rows = 8192 * 48,
                              .eps = 1e-6f };
}
static inline gdn_state_shape mock_state(uint32_t op) {
    return (gdn_state_shape) { .base = HEAD(gdn_state_shape, op), .bytes = 1u << 20, .max_count = 16 };
}

#endif
