/* ssm_preprocess.cu - the projection of b and a fused with the gates, and the gates alone.
 *
 *     r[m][n] = sum_k A[m][k] B[n][k]          beta = sigmoid(r), gate = exp(-exp(min(A_log,20)) log(1 + exp(min(r + dt_bias,20))))
 *
 * dense_gemm_ba_gates_prefill  grid (ceil(N/4), min(M, 65535)), block 256 = 4 outputs x 64 lanes, rows m, m + gridDim.y, ...
 *                              A bf16 [M][K_stride], B bf16 [N][K], A_log and dt_bias f32 [nv]; out f32 [M][gate_stride], row [gate nv |
 * beta nv] dense_gemv_ba_gates          the same for one row, grid ceil(N/4), block 256, gate f32 [nv] and beta f32 [nv] apart K % 8 == 0,
 * rows 16-byte aligned. Bit contract: the order of additions in gdn_ba_dot.cuh; column to head: gdn_ba_maps.h gdn_gates elementwise, grid
 * ceil(rows * nv / 256) or less, block 256; a, b bf16 rows of their own strides (elements), vpg > 0: head h at (h/vpg)*2*vpg + h%vpg of a
 * row; out f32 as above; log_form: the argument of the decay's exp Only exactly rounded operations: the same bytes on every device and in
 * the emulator. */
#include "gdn_ba_dot.cuh"
#include "gdn_device.cuh"
#include "gdn_gates.cuh"
#include "gdn_gates_exact.cuh"

/* ---- projection ---- */
/* The two warps of each output meet in `part`; threads 0..3 store. One barrier: `part` is another buffer every other row. */
GDN_DEVICE void ba_row(const gdn_bf16 *a, const gdn_bf16 *B, float *part, float *gate, float *beta, const float *A_log,
                       const float *dt_bias, uint32_t N, uint32_t K, uint32_t vpg) {
    const uint32_t lo = threadIdx.x / GDN_BA_LANES, lane = threadIdx.x % GDN_BA_LANES, n = gdn_ba_output(blockIdx.x, lo);
    float sum = n < N ? gdn_ba_lane_sum(a, B + (uint64_t)n * K, lane, K) : 0.0f; /* a warp has one n */
    sum = gdn_warp_sum_down(sum);
    if (lane % 32 == 0) part[gdn_ba_warp(lo, lane)] = sum;
    gdn_sync_block();
    const uint32_t mine = gdn_ba_output(blockIdx.x, threadIdx.x);
    if (threadIdx.x < GDN_BA_OUTPUTS && mine < N) {
        const gdn_ba_pair pair = gdn_ba_warp_pair(threadIdx.x);
        gdn_store_gate(gate, beta, part[pair.even] + part[pair.odd], mine, vpg, A_log, dt_bias);
    }
}

GDN_KERNEL(256)
dense_gemm_ba_gates_prefill(const gdn_bf16 *A, const gdn_bf16 *B, const float *A_log, const float *dt_bias, float *gate_out, uint32_t M,
                            uint32_t N, uint32_t K, uint32_t K_stride, uint32_t gate_stride, uint32_t nv, uint32_t vheads_per_group) {
    gdn_begin();
    gdn_let_next();
    __shared__ float part[2][GDN_BA_WARPS];
    uint32_t turn = 0;
    for (uint32_t m = blockIdx.y; m < M; turn ^= 1) {
        float *const row = gate_out + (uint64_t)m * gate_stride;
        ba_row(A + (uint64_t)m * K_stride, B, part[turn], row, row + nv, A_log, dt_bias, N, K, vheads_per_group ? vheads_per_group : nv);
        if (M - m <= gridDim.y) break; /* m + gridDim.y may pass 2^32 */
        m += gridDim.y;
    }
}

GDN_KERNEL(256)
dense_gemv_ba_gates(const gdn_bf16 *A, const gdn_bf16 *B, const float *A_log, const float *dt_bias, float *gate, float *beta, uint32_t N,
                    uint32_t K, uint32_t nv, uint32_t vheads_per_group) {
    gdn_begin();
    gdn_let_next();
    __shared__ float part[GDN_BA_WARPS];
    ba_row(A, B, part, gate, beta, A_log, dt_bias, N, K, vheads_per_group ? vheads_per_group : nv);
}

/* ---- gates alone ---- */
GDN_KERNEL(256)
gdn_gates(const gdn_bf16 *a, const gdn_bf16 *b, const float *A_log, const float *dt_bias, float *out, uint32_t rows, uint32_t nv,
          uint32_t a_stride, uint32_t b_stride, uint32_t gate_stride, uint32_t vpg, uint32_t log_form) {
    gdn_begin();
    gdn_let_next();
    const uint64_t total = (uint64_t)rows * nv, step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        const uint64_t row = total >> 32 ? i / nv : (uint32_t)i / nv;
        const uint32_t h = (uint32_t)(i - row * nv), at = vpg ? h / vpg * 2 * vpg + h % vpg : h;
        float *const o = out + row * gate_stride;
        o[h] = gdn_gate_exact(gdn_to_f32(a[row * a_stride + at]), A_log[h], dt_bias[h], log_form != 0);
        o[nv + h] = gdn_beta_exact(gdn_to_f32(b[row * b_stride + at]));
    }
}
