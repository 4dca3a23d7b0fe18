/* ssm_ba_gates_hopper.cu - dense_gemm_ba_gates_prefill_hopper: the BA projection with its gates, one block a token.
 *
 *     r[m][n] = sum_k A[m][k] B[n][k], then the gates of gdn_gates.cuh
 *
 * Grid (M, 1, 1), block 256 = 4 outputs x 64 lanes; a thread has 8 groups of 4 outputs, 32 columns a pass. Arguments, output row and
 * bytes are those of dense_gemm_ba_gates_prefill in ssm_preprocess.cu (gdn_ba_dot.cuh: the order of additions); what differs is who
 * reads: an activation vector, once loaded and widened, serves 8 outputs, so the row is read ceil(ceil(N/4)/8)*4 times and not N.
 * Eight groups fit 64 registers (four blocks a multiprocessor, whose passes over B meet in L1), twelve spill. */
#include "gdn_ba_dot.cuh"
#include "gdn_device.cuh"
#include "gdn_gates.cuh"

/* Columns [first, first + 32) of a row: each thread's eight sums. Rows of B past the end: the last one again, not stored. */
GDN_DEVICE void pass_sums(float (&acc)[GDN_BA_GROUPS], const gdn_bf16 *a, const gdn_bf16 *B, uint32_t group0, uint32_t lo, uint32_t lane,
                          uint32_t N, uint32_t K) {
    const uint32_t n0 = gdn_ba_output(group0, lo);
    const gdn_bf16 *const b = B + (uint64_t)(n0 < N ? n0 : N - 1) * K;
    uint64_t at[GDN_BA_GROUPS]; /* the same in all lanes: kept in uniform registers or made again, not a register pair each */
    GDN_UNROLL
    for (uint32_t g = 0; g < GDN_BA_GROUPS; g++) {
        at[g] = n0 + g * GDN_BA_OUTPUTS < N ? (uint64_t)(g * GDN_BA_OUTPUTS) * K : 0;
        acc[g] = 0.0f;
    }
    GDN_NO_UNROLL
    for (uint32_t kv = lane; kv < K / GDN_BA_VECTOR; kv += GDN_BA_LANES) {
        float e[8];
        gdn_ba_widen(e, gdn_ld16_ro(a + (uint64_t)kv * GDN_BA_VECTOR));
        GDN_UNROLL
        for (uint32_t half = 0; half < GDN_BA_GROUPS; half += GDN_BA_GROUPS / 2) {
            uint4 w[GDN_BA_GROUPS / 2];
            GDN_UNROLL
            for (uint32_t g = 0; g < GDN_BA_GROUPS / 2; g++) w[g] = gdn_ld16_ro(b + at[half + g] + (uint64_t)kv * GDN_BA_VECTOR);
            GDN_UNROLL
            for (uint32_t g = 0; g < GDN_BA_GROUPS / 2; g++) acc[half + g] = gdn_ba_dot8(acc[half + g], e, w[g]);
        }
    }
}

GDN_KERNEL(256, 4)
dense_gemm_ba_gates_prefill_hopper(const gdn_bf16 *A, const gdn_bf16 *B, const float *A_log, const float *dt_bias, float *gate_out,
                                   uint32_t M, uint32_t N, uint32_t K, uint32_t K_stride, uint32_t gate_stride, uint32_t nv,
                                   uint32_t vheads_per_group) {
    gdn_begin();
    __shared__ float part[2][GDN_BA_GROUPS][GDN_BA_WARPS];
    if (blockIdx.x >= M) return; /* the whole block */
    const uint32_t lo = threadIdx.x / GDN_BA_LANES, lane = threadIdx.x % GDN_BA_LANES, vpg = vheads_per_group ? vheads_per_group : nv;
    const gdn_bf16 *const a = A + (uint64_t)blockIdx.x * K_stride;
    float *const row = gate_out + (uint64_t)blockIdx.x * gate_stride;
    uint32_t turn = 0; /* of `part`: one barrier a pass */
    for (uint32_t group0 = 0; gdn_ba_output(group0, 0) < N; group0 += GDN_BA_GROUPS, turn ^= 1) {
        float acc[GDN_BA_GROUPS];
        pass_sums(acc, a, B, group0, lo, lane, N, K);
        GDN_UNROLL
        for (uint32_t g = 0; g < GDN_BA_GROUPS; g++) {
            acc[g] = gdn_warp_sum_down(acc[g]);
            if (lane % 32 == 0) part[turn][g][gdn_ba_warp(lo, lane)] = acc[g];
        }
        gdn_sync_block();
        const uint32_t g = threadIdx.x / GDN_BA_OUTPUTS, out = threadIdx.x % GDN_BA_OUTPUTS, n = gdn_ba_output(group0 + g, out);
        if (g < GDN_BA_GROUPS && n < N) {
            const gdn_ba_pair pair = gdn_ba_warp_pair(out);
            gdn_store_gate(row, row + nv, part[turn][g][pair.even] + part[turn][g][pair.odd], n, vpg, A_log, dt_bias);
        }
    }
}
