/* gt_jobs.c - jobs of each operation: shapes, strides with gaps of NaN, contents. */
#include "gt.h"
#include <string.h>

/* n rows of `width` random values, `stride` apart; what lies between is NaN. */
static void *rows_with_gaps(gt *t, uint64_t n, uint64_t width, uint64_t stride, double lo, double hi) {
    uint16_t *p = gt_keep(t, n * stride * 2);
    memset(p, 0xFF, n * stride * 2);
    for (uint64_t i = 0; i < n; i++) num_fill(p + i * stride, GDN_BF16, width, &t->r, lo, hi);
    return p;
}
static gt_buf input(const void *p, uint64_t bytes) {
    return (gt_buf) { .bytes = bytes, .init = p, .role = GT_IN };
}
static gt_buf output(uint64_t n, uint32_t type, double tol) {
    return (gt_buf) { .bytes = n * num_size(type), .role = GT_OUT, .type = type, .tol = tol };
}

/* ---- convolution ---- */
enum { BF16_TOL_E6 = 300 }; /* both sides round an f32 once; a tie's other side is one step in 2^8 */
#define BF16_TOL (BF16_TOL_E6 * 1e-6)

static void conv_states(gt *t, const gt_conv *c, const gdn_conv_shape *s, const int32_t *slot, gt_job *job) {
    const uint64_t one = (uint64_t)s->channels * (c->width - 1 + c->extra), n = s->num_slots * one;
    uint16_t *p = gt_random(t, GDN_BF16, n, -2, 2);
    for (uint32_t b = 0; b < c->batch; b++) /* what a fresh sequence must not read */
        if (c->fresh && c->fresh[b] && slot[b] >= 0) memset(p + (uint64_t)slot[b] * one, 0xFF, one * 2);
    job->buf[GDN_CONV1D_P_STATE] = (gt_buf) { .bytes = n * 2, .init = p, .role = GT_INOUT, .type = GDN_BF16 };
}

static void conv_offsets(gt *t, const gt_conv *c, gt_buf *out) {
    int64_t *wide = gt_keep(t, (c->batch + 1) * 8ull);
    int32_t *narrow = gt_keep(t, (c->batch + 1) * 4ull);
    for (uint32_t b = 0; b < c->batch; b++) wide[b + 1] = wide[b] + c->len[b];
    for (uint32_t b = 0; b <= c->batch; b++) narrow[b] = (int32_t)wide[b];
    *out = c->offsets == GDN_OFFSETS_I64 ? input(wide, (c->batch + 1) * 8ull) : input(narrow, (c->batch + 1) * 4ull);
}

void gt_conv_job(gt *t, const gt_conv *spec, gt_shapes *s, gt_job *job) {
    gt_conv c = *spec;
    c.width = c.width ? c.width : 4;
    c.batch = c.batch ? c.batch : 1;
    c.channels = c.nk ? (2 * c.nk + c.nv) * c.dim : c.channels;
    c.num_slots = c.num_slots ? c.num_slots : c.batch + 3;
    c.offsets = c.len ? c.offsets ? c.offsets : (uint32_t)GDN_OFFSETS_I32 : 0;
    c.weight_type = c.weight_type ? c.weight_type : GDN_BF16;
    const uint64_t C = c.channels, wsize = num_size(c.weight_type);
    uint64_t rows = (uint64_t)c.batch * c.rows;
    if (c.len) rows = 0;
    for (uint32_t b = 0; c.len && b < c.batch; b++) rows += c.len[b];
    int32_t *slot = gt_keep(t, c.batch * 4ull);
    for (uint32_t b = 0; b < c.batch; b++) slot[b] = c.no_slots ? (int32_t)b : c.slots ? c.slots[b] : (int32_t)(c.batch + 1 - b);
    s->conv = (gdn_conv_shape) { .base = GT_BASE(gdn_conv_shape, c.nk ? GDN_OP_CONV_FUSED : GDN_OP_CONV1D),
                                 .channels = c.channels,
                                 .width = c.width,
                                 .state_len = c.width - 1 + c.extra,
                                 .x_stride = c.channels + c.x_pad,
                                 .silu = c.no_silu ? GDN_CONV_ACT_NONE : GDN_CONV_ACT_SILU,
                                 .weight_type = c.weight_type,
                                 .offsets = c.offsets,
                                 .max_tokens = rows ? (uint32_t)rows : 1,
                                 .max_batch = c.batch,
                                 .num_slots = c.num_slots };
    if (c.keep) s->conv.base.flags = GDN_CONV_KEEP_ROWS;
    *job = (gt_job) { .shape = &s->conv.base, .n_ptr = GDN_CONV1D_N_PTR, .u32 = { c.batch, c.len ? 0 : c.rows }, .n_u32 = 2 };
    job->buf[GDN_CONV1D_P_X] = input(rows_with_gaps(t, rows, C, C + c.x_pad, -2, 2), rows * (C + c.x_pad) * 2);
    job->buf[GDN_CONV1D_P_X].shift = c.shift;
    job->buf[GDN_CONV1D_P_WEIGHT] = input(gt_random(t, c.weight_type, C * c.width, -0.7, 0.7), C * c.width * wsize);
    if (c.bias) job->buf[GDN_CONV1D_P_BIAS] = input(gt_random(t, c.weight_type, C, -0.5, 0.5), C * wsize);
    if (!c.no_state) conv_states(t, &c, &s->conv, slot, job);
    if (!c.no_slots) job->buf[GDN_CONV1D_P_SLOTS] = input(slot, c.batch * 4ull);
    if (c.fresh) job->buf[GDN_CONV1D_P_FRESH] = input(c.fresh, c.batch);
    uint32_t cu = GDN_CONV1D_P_CU_SEQLENS, accepted = GDN_CONV1D_P_ACCEPTED;
    if (c.nk) {
        gdn_conv_shape *f = &s->conv;
        f->nk = c.nk, f->nv = c.nv, f->k_dim = c.dim, f->v_dim = c.dim;
        f->q_stride = f->k_stride = c.nk * c.dim + c.out_pad;
        f->v_stride = c.nv * c.dim + c.out_pad;
        job->n_ptr = GDN_CONV_FUSED_N_PTR;
        job->buf[GDN_CONV_FUSED_P_OUT_Q] = output(rows * f->q_stride, GDN_BF16, BF16_TOL);
        job->buf[GDN_CONV_FUSED_P_OUT_K] = output(rows * f->k_stride, GDN_BF16, BF16_TOL);
        job->buf[GDN_CONV_FUSED_P_OUT_V] = output(rows * f->v_stride, GDN_BF16, BF16_TOL);
        cu = GDN_CONV_FUSED_P_CU_SEQLENS, accepted = GDN_CONV_FUSED_P_ACCEPTED;
    } else {
        s->conv.out_stride = c.channels + c.out_pad;
        job->buf[GDN_CONV1D_P_OUT] = output(rows * s->conv.out_stride, GDN_BF16, BF16_TOL);
    }
    if (c.len) conv_offsets(t, &c, &job->buf[cu]);
    if (c.accepted) job->buf[accepted] = input(c.accepted, c.batch * 4ull);
}

/* ---- b/a projection ---- */
void gt_ba_job(gt *t, uint32_t M, uint32_t nv, uint32_t vpg, uint32_t K, uint32_t pad, uint32_t out_pad, gt_shapes *s, gt_job *job) {
    const uint64_t N = 2ull * nv, bound = 2 * nv + out_pad;
    s->ba = (gdn_ba_shape) { .base = GT_BASE(gdn_ba_shape, GDN_OP_BA_GATES),
                             .N = (uint32_t)N,
                             .K = K,
                             .K_stride = K + pad,
                             .gate_stride = (uint32_t)bound,
                             .nv = nv,
                             .vheads_per_group = vpg,
                             .weight_type = GDN_BF16,
                             .max_m = M };
    *job = (gt_job) { .shape = &s->ba.base, .n_ptr = GDN_BA_GATES_N_PTR, .u32 = { M }, .n_u32 = 1 };
    job->buf[GDN_BA_GATES_P_A] = input(rows_with_gaps(t, M, K, K + pad, -1, 1), 2ull * M * (K + pad));
    job->buf[GDN_BA_GATES_P_B] = input(gt_random(t, GDN_BF16, N * K, -0.1, 0.1), 2 * N * K);
    job->buf[GDN_BA_GATES_P_A_LOG] = input(gt_random(t, GDN_F32, nv, -2, 2), 4ull * nv);
    job->buf[GDN_BA_GATES_P_DT_BIAS] = input(gt_random(t, GDN_F32, nv, -1, 1), 4ull * nv);
    job->buf[GDN_BA_GATES_P_GATE_OUT] = output(M * bound, GDN_F32, 2e-5);
}

/* Row `row` of that job's inputs, alone. */
void gt_gemv_job(gt *t, const gt_job *ba, uint32_t row, gt_shapes *s, gt_job *job) {
    const gdn_ba_shape *from = (const gdn_ba_shape *)(const void *)ba->shape;
    (void)t;
    gdn_ba_shape one = *from;
    one.base.op = GDN_OP_BA_GEMV;
    one.gate_stride = 0;
    one.max_m = 1;
    s->ba = one;
    *job = *ba;
    job->shape = &s->ba.base;
    job->n_ptr = GDN_BA_GEMV_N_PTR;
    job->n_u32 = 0;
    job->buf[GDN_BA_GEMV_P_A] = input((const uint16_t *)ba->buf[GDN_BA_GATES_P_A].init + (uint64_t)row * from->K_stride, 2ull * from->K);
    job->buf[GDN_BA_GEMV_P_GATE] = output(from->nv, GDN_F32, 2e-5);
    job->buf[GDN_BA_GEMV_P_BETA] = output(from->nv, GDN_F32, 2e-5);
}

/* ---- gates, norm, states ---- */
void gt_gates_job(gt *t, uint32_t rows, uint32_t nv, uint32_t vpg, uint32_t pad, uint32_t form, gt_shapes *s, gt_job *job) {
    const uint32_t width = vpg ? 2 * nv : nv, stride = width + pad;
    s->gates = (gdn_gates_shape) { .base = GT_BASE(gdn_gates_shape, GDN_OP_GATES),
                                   .nv = nv,
                                   .a_stride = stride,
                                   .b_stride = stride,
                                   .gate_stride = 2 * nv + pad,
                                   .vheads_per_group = vpg,
                                   .gate_form = form,
                                   .param_type = GDN_F32,
                                   .max_rows = rows };
    *job = (gt_job) { .shape = &s->gates.base, .n_ptr = GDN_GATES_N_PTR, .u32 = { rows }, .n_u32 = 1 };
    job->buf[GDN_GATES_P_A] = input(rows_with_gaps(t, rows, width, stride, -6, 6), 2ull * rows * stride);
    job->buf[GDN_GATES_P_B] = input(rows_with_gaps(t, rows, width, stride, -6, 6), 2ull * rows * stride);
    job->buf[GDN_GATES_P_A_LOG] = input(gt_random(t, GDN_F32, nv, -3, 2), 4ull * nv);
    job->buf[GDN_GATES_P_DT_BIAS] = input(gt_random(t, GDN_F32, nv, -1, 1), 4ull * nv);
    job->buf[GDN_GATES_P_OUT] = output((uint64_t)rows * s->gates.gate_stride, GDN_F32, 3e-6);
}

void gt_norm_job(gt *t, uint32_t rows, uint32_t heads, uint32_t dim, uint32_t act, uint32_t pad, gt_shapes *s, gt_job *job) {
    const uint32_t groups = (rows + heads - 1) / heads, stride = heads * dim + pad;
    s->norm = (gdn_norm_shape) { .base = GT_BASE(gdn_norm_shape, GDN_OP_NORM),
                                 .dim = dim,
                                 .heads = heads,
                                 .x_stride = stride,
                                 .z_stride = stride + pad,
                                 .act = act,
                                 .weight_type = GDN_BF16,
                                 .max_rows = rows,
                                 .eps = 1e-6f };
    *job = (gt_job) { .shape = &s->norm.base, .n_ptr = GDN_NORM_N_PTR, .u32 = { rows }, .n_u32 = 1 };
    job->buf[GDN_NORM_P_X] = input(rows_with_gaps(t, groups, heads * dim, stride, -3, 3), 2ull * groups * stride);
    job->buf[GDN_NORM_P_Z] = input(rows_with_gaps(t, groups, heads * dim, stride + pad, -4, 4), 2ull * groups * (stride + pad));
    job->buf[GDN_NORM_P_W] = input(gt_random(t, GDN_BF16, dim, 0.5, 1.5), 2ull * dim);
    job->buf[GDN_NORM_P_OUT] = output((uint64_t)rows * dim, GDN_BF16, BF16_TOL);
}

/* Slot 1 to 3, a skipped pair, 2 to 0; or 1 and 3 zeroed. */
void gt_state_job(gt *t, bool copy, uint64_t bytes, uint32_t slots, gt_shapes *s, gt_job *job) {
    int32_t *from = gt_keep(t, 12), *to = gt_keep(t, 12);
    const int32_t pairs[2][3] = { { 1, -1, 2 }, { 3, 1, 0 } };
    memcpy(from, pairs[0], 12);
    memcpy(to, pairs[1], 12);
    if (!copy) to[0] = 3, to[1] = -1, to[2] = 1;
    s->state = (gdn_state_shape) { .base = { (uint32_t)sizeof s->state, copy ? GDN_OP_STATE_COPY : GDN_OP_STATE_ZERO, 0, 0 },
                                   .bytes = bytes,
                                   .src_stride = bytes + 16,
                                   .dst_stride = bytes + 16,
                                   .max_count = 3 };
    *job = (gt_job) { .shape = &s->state.base, .n_ptr = copy ? GDN_STATE_COPY_N_PTR : GDN_STATE_ZERO_N_PTR, .u32 = { 3 }, .n_u32 = 1 };
    const uint64_t whole = slots * (bytes + 16);
    const gt_buf pool = { .bytes = whole, .init = gt_random(t, GDN_BF16, whole / 2 + 1, -1, 1), .role = GT_INOUT, .type = GDN_BF16 };
    if (copy) {
        job->buf[GDN_STATE_COPY_P_SRC] = pool;
        job->buf[GDN_STATE_COPY_P_DST] = pool;
        job->buf[GDN_STATE_COPY_P_DST].same_as = GDN_STATE_COPY_P_SRC + 1;
        job->buf[GDN_STATE_COPY_P_SRC_SLOTS] = input(from, 12);
        job->buf[GDN_STATE_COPY_P_DST_SLOTS] = input(to, 12);
    } else {
        job->buf[GDN_STATE_ZERO_P_DST] = pool;
        job->buf[GDN_STATE_ZERO_P_DST_SLOTS] = input(to, 12);
    }
}

const char *gt_job_name(uint32_t index) {
    static const char *const names[] = { "conv1d", "conv_fused", "gates", "ba_gates", "ba_gemv", "norm", "state_copy", "state_zero" };
    return index < GT_N(names) ? names[index] : NULL;
}

void gt_any_job(gt *t, uint32_t index, gt_shapes *s, gt_job *job) {
    static const gt_conv plain = { .channels = 520, .batch = 2, .rows = 19 },
                         fused = { .nk = 2, .nv = 4, .dim = 128, .batch = 2, .rows = 21 };
    gt_job ba;
    switch (index) {
    case 0: gt_conv_job(t, &plain, s, job); break;
    case 1: gt_conv_job(t, &fused, s, job); break;
    case 2: gt_gates_job(t, 37, 6, 0, 0, GDN_GATE_LINEAR, s, job); break;
    case 3: gt_ba_job(t, 29, 6, 3, 264, 8, 3, s, job); break;
    case 4:
        gt_ba_job(t, 3, 6, 3, 264, 0, 0, s, &ba);
        gt_gemv_job(t, &ba, 1, s, job);
        break;
    case 5: gt_norm_job(t, 66, 6, 128, GDN_NORM_SILU, 0, s, job); break;
    default: gt_state_job(t, index == 6, 4000, 5, s, job); break;
    }
}
