/* step_shapes.h - a decode step of `batch` sequences in its two ways, the fused launch and the four that it stands for: bf16 rows packed as
 * they come, 128 wide heads, width 4. Of the bench and of gpu_test. */
#ifndef GDN_CLI_STEP_SHAPES_H
#define GDN_CLI_STEP_SHAPES_H

#include "gdn.h"

enum { STEP_DIM = 128, STEP_WIDTH = 4 };

typedef struct step_shapes {
    gdn_step_shape fused;
    gdn_conv_shape conv;
    gdn_gates_shape gates;
    gdn_rule_shape rule; /* contiguous states */
    gdn_norm_shape norm;
} step_shapes;

#define STEP_BASE_(T, op_) \
    { (uint32_t)sizeof(T), (op_), 0, GDN_BF16 }
static inline step_shapes step_shapes_of(uint32_t nk, uint32_t nv, uint32_t batch) {
    const uint32_t channels = (2 * nk + nv) * STEP_DIM;
    return (step_shapes) { .fused = { .base = STEP_BASE_(gdn_step_shape, GDN_OP_DECODE_STEP),
                                      .nk = nk,
                                      .nv = nv,
                                      .k_dim = STEP_DIM,
                                      .v_dim = STEP_DIM,
                                      .width = STEP_WIDTH,
                                      .weight_type = GDN_BF16,
                                      .gates = GDN_STEP_GATES_RAW,
                                      .param_type = GDN_F32,
                                      .state_type = GDN_F32,
                                      .norm_act = GDN_NORM_SILU,
                                      .norm_weight_type = GDN_BF16,
                                      .eps = 1e-6f,
                                      .max_batch = batch },
                           .conv = { .base = STEP_BASE_(gdn_conv_shape, GDN_OP_CONV_FUSED),
                                     .channels = channels,
                                     .width = STEP_WIDTH,
                                     .silu = 1,
                                     .weight_type = GDN_BF16,
                                     .max_tokens = batch,
                                     .max_batch = batch,
                                     .nk = nk,
                                     .nv = nv,
                                     .k_dim = STEP_DIM,
                                     .v_dim = STEP_DIM },
                           .gates = { .base = STEP_BASE_(gdn_gates_shape, GDN_OP_GATES),
                                      .nv = nv,
                                      .gate_form = GDN_GATE_LINEAR,
                                      .param_type = GDN_F32,
                                      .max_rows = batch },
                           .rule = { .base = STEP_BASE_(gdn_rule_shape, GDN_OP_DECODE),
                                     .nk = nk,
                                     .nv = nv,
                                     .k_dim = STEP_DIM,
                                     .v_dim = STEP_DIM,
                                     .qk_stride = channels,
                                     .v_stride = channels,
                                     .gate_form = GDN_GATE_LINEAR,
                                     .state_type = GDN_F32,
                                     .max_batch = batch },
                           .norm = { .base = STEP_BASE_(gdn_norm_shape, GDN_OP_NORM),
                                     .dim = STEP_DIM,
                                     .heads = nv,
                                     .act = GDN_NORM_SILU,
                                     .weight_type = GDN_BF16,
                                     .max_rows = batch * nv,
                                     .eps = 1e-6f } };
}

#endif
