/* gated_delta_rule_recurrent.cu - prefill for heads of 64, token after token: the state stays in registers, 16 rows of a value column a
 * thread. Contract: abi/gdn_op_rule.h; decays as in prefill (no clamp to [1e-6, 1 - 1e-6]).
 *
 *   gated_delta_rule_recurrent_prefill[_ext]   grid (nv, batch), block 256, no dynamic shared memory
 *
 * Rows of GDN_R_TILE tokens are brought to shared memory while the tile before is computed. Sums over k: a thread's 16 rows ascending,
 * then a butterfly over the four threads of the column; every product and sum is rounded once (fma). A prefill cut anywhere gives the
 * same bytes as one call. _ext: gdn_rule_ext's fields appended; chunk_begin and chunk_end are not looked at (all tokens are run). */
#include "gdn_device.cuh"
#include "gdn_rule.cuh"

enum { GDN_R_DIM = 64, GDN_R_BLOCK = 256, GDN_R_SPLIT = 4, GDN_R_ROWS = GDN_R_DIM / GDN_R_SPLIT, GDN_R_TILE = 32 };

struct gdn_recurrent {
    void *h_state;
    const gdn_bf16 *query, *key, *value;
    const float *gate, *beta;
    gdn_bf16 *output;
    uint32_t seq_len, nk, nv, qk_stride, v_stride, gb_stride;
    bool is_table, varlen;
    const int32_t *cu;
};

struct gdn_recurrent_tile {
    float q[GDN_R_TILE][GDN_R_DIM], k[GDN_R_TILE][GDN_R_DIM], v[GDN_R_TILE][GDN_R_DIM], decay[GDN_R_TILE], beta[GDN_R_TILE];
};

/* The decay a token multiplies the state by. */
GDN_DEVICE float prefill_decay(float gate) {
    return GDN_IS_LOG ? gdn_exp(gdn_log_decay(gate)) : fmaxf(gate, 1e-30f);
}

GDN_DEVICE void load_tile(gdn_recurrent_tile &m, const gdn_recurrent &a, uint64_t token, uint64_t qk_token, uint32_t rows, uint32_t head) {
    const uint32_t key_head = gdn_key_head(head, a.nk, a.nv);
    for (uint32_t p = threadIdx.x; p < rows * GDN_R_DIM; p += GDN_R_BLOCK) {
        const uint32_t r = p / GDN_R_DIM, i = p % GDN_R_DIM;
        const uint64_t qk = (qk_token + r) * a.qk_stride + key_head * GDN_R_DIM + i;
        m.q[r][i] = gdn_to_f32(a.query[qk]);
        m.k[r][i] = gdn_to_f32(a.key[qk]);
        m.v[r][i] = gdn_to_f32(a.value[(token + r) * a.v_stride + head * GDN_R_DIM + i]);
    }
    if (threadIdx.x < rows) {
        const uint64_t at = (token + threadIdx.x) * a.gb_stride + head;
        m.decay[threadIdx.x] = prefill_decay(a.gate[at]);
        m.beta[threadIdx.x] = a.beta[at];
    }
}

GDN_DEVICE float column_sum(float x) {
    x += __shfl_xor_sync(GDN_FULL_MASK, x, 1);
    x += __shfl_xor_sync(GDN_FULL_MASK, x, 2);
    return x;
}

GDN_DEVICE void recurrent_prefill(const gdn_recurrent &a, const gdn_rule_ext &x) {
    __shared__ gdn_recurrent_tile m;
    const uint32_t head = blockIdx.x, b = blockIdx.y, part = threadIdx.x % GDN_R_SPLIT, v = threadIdx.x / GDN_R_SPLIT;
    const gdn_state_ptrs h = gdn_states_of(x, a.h_state, a.is_table, b, head, a.nv, GDN_R_DIM, GDN_R_DIM);
    const gdn_sequence s = gdn_find_sequence(x, b, a.seq_len, 0, a.cu, a.varlen);
    const uint64_t ckpt0 = x.ckpt_every ? gdn_ckpts_before(x, b, a.seq_len, a.cu, a.varlen) : 0;
    gdn_bf16 *const out = a.output + s.token * a.nv * GDN_R_DIM + head * GDN_R_DIM;
    const uint64_t out_stride = (uint64_t)a.nv * GDN_R_DIM;
    if (!h.in) {
        for (uint64_t p = threadIdx.x; p < (uint64_t)s.len * GDN_R_DIM; p += GDN_R_BLOCK)
            out[p / GDN_R_DIM * out_stride + p % GDN_R_DIM] = gdn_bf16 { 0 };
        return;
    }
    const float scale = gdn_output_scale(GDN_R_DIM, x.scale);
    const bool fresh = gdn_is_fresh(x, b);
    float S[GDN_R_ROWS];
    auto place = [&](uint32_t j) { return gdn_state_at(part * GDN_R_ROWS + j, v, GDN_R_DIM, GDN_R_DIM); };
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_R_ROWS; j++) S[j] = fresh ? 0.0f : h.in[place(j)];
    for (uint32_t t0 = 0; t0 < s.len; t0 += GDN_R_TILE) {
        const uint32_t rows = min((uint32_t)GDN_R_TILE, s.len - t0);
        gdn_sync_block();
        load_tile(m, a, s.token + t0, s.qk_token + t0, rows, head);
        gdn_sync_block();
        for (uint32_t t = 0; t < rows; t++) {
            float dot = 0, o = 0;
            const float *const k = m.k[t] + part * GDN_R_ROWS, *const q = m.q[t] + part * GDN_R_ROWS;
            GDN_UNROLL
            for (uint32_t j = 0; j < GDN_R_ROWS; j++) {
                S[j] = m.decay[t] * S[j];
                dot = gdn_fma(S[j], k[j], dot);
            }
            const float u = m.beta[t] * (m.v[t][v] - column_sum(dot));
            GDN_UNROLL
            for (uint32_t j = 0; j < GDN_R_ROWS; j++) {
                S[j] = gdn_fma(k[j], u, S[j]);
                o = gdn_fma(S[j], q[j], o);
            }
            o = column_sum(o) * scale;
            if (part == 0) out[(uint64_t)(t0 + t) * out_stride + v] = gdn_to_bf16(o);
            if (x.ckpt_every && (t0 + t + 1) % x.ckpt_every == 0) {
                float *const to = x.ckpt + ((ckpt0 + (t0 + t + 1) / x.ckpt_every - 1) * a.nv + head) * GDN_R_DIM * GDN_R_DIM;
                GDN_UNROLL
                for (uint32_t j = 0; j < GDN_R_ROWS; j++) to[place(j)] = S[j];
            }
        }
    }
    GDN_UNROLL
    for (uint32_t j = 0; j < GDN_R_ROWS; j++) h.out[place(j)] = S[j];
}

#define ARGS_                                                                                                                       \
    void *h_state, const gdn_bf16 *query, const gdn_bf16 *key, const gdn_bf16 *value, const float *gate, const float *beta,         \
        gdn_bf16 *output, uint32_t batch, uint32_t seq_len, uint32_t nk, uint32_t nv, uint32_t kd, uint32_t vd, uint32_t qk_stride, \
        uint32_t v_stride, uint32_t gb_stride, uint32_t h_state_is_table, const int32_t *cu_seqlens, uint32_t is_varlen
#define VALUES_                                                                                                                 \
    gdn_recurrent {                                                                                                             \
        h_state, query, key, value, gate, beta, output, seq_len, nk, nv, qk_stride, v_stride, gb_stride, h_state_is_table != 0, \
            is_varlen != 0, cu_seqlens                                                                                          \
    }
GDN_KERNEL(GDN_R_BLOCK, 2) gated_delta_rule_recurrent_prefill(ARGS_) {
    gdn_begin();
    (void)batch, (void)kd, (void)vd;
    recurrent_prefill(VALUES_, gdn_rule_ext {});
}
GDN_KERNEL(GDN_R_BLOCK, 2)
gated_delta_rule_recurrent_prefill_ext(ARGS_, GDN_PREFILL_EXT_ARGS) {
    gdn_begin();
    (void)batch, (void)kd, (void)vd;
    recurrent_prefill(VALUES_, GDN_PREFILL_EXT);
}
