/* engine_rows.cu - what the engine needs of a GPU besides the plugins' operations and cuBLAS: the row operations of dense.h.
 *
 * bf16 in memory, f32 inside, one rounding where dense.h has one. Blocks of 256 threads; dense rows. Nothing here waits for another
 * block, allocates or depends on the host: token ids are read from device memory, so that a captured step serves every token.
 *
 *     gdn_engine_embed     y[r] = w[tokens[r]]                                             grid (rows)
 *     gdn_engine_rms_norm  y[r] = x[r] * (1 / sqrt(mean x[r]^2 + eps)) * w, w f32          grid (rows)
 *     gdn_engine_add       y += x, n elements                                              grid (ceil(n / 256))
 *     gdn_engine_silu_mul  y[r] = bf16(silu(gate[r])) * up[r], rows [gate dim | up dim]    grid (ceil(dim / 256), rows)
 *
 * Sum of squares: each thread the elements tid, tid + 256, ... ascending, a butterfly over the warp, warps ascending. */
#include "gdn_math.cuh"
#include "gdn_warp.cuh"

#define ENGINE_BLOCK 256

GDN_KERNEL(ENGINE_BLOCK)
gdn_engine_embed(const gdn_bf16 *w, const uint32_t *tokens, gdn_bf16 *y, uint32_t dim) {
    gdn_begin();
    gdn_let_next();
    const gdn_bf16 *const from = w + (uint64_t)tokens[blockIdx.x] * dim;
    gdn_bf16 *const to = y + (uint64_t)blockIdx.x * dim;
    for (uint32_t i = threadIdx.x; i < dim; i += ENGINE_BLOCK) to[i] = from[i];
}

GDN_KERNEL(ENGINE_BLOCK)
gdn_engine_rms_norm(const gdn_bf16 *x, const float *w, gdn_bf16 *y, uint32_t dim, float eps) {
    gdn_begin();
    gdn_let_next();
    __shared__ float part[ENGINE_BLOCK / 32];
    const gdn_bf16 *const from = x + (uint64_t)blockIdx.x * dim;
    gdn_bf16 *const to = y + (uint64_t)blockIdx.x * dim;
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < dim; i += ENGINE_BLOCK) {
        const float v = gdn_to_f32(from[i]);
        sum = gdn_fma(v, v, sum);
    }
    sum = gdn_warp_sum(sum);
    if (gdn_lane() == 0) part[threadIdx.x / 32] = sum;
    gdn_sync_block();
    sum = 0;
    for (uint32_t i = 0; i < ENGINE_BLOCK / 32; i++) sum += part[i];
    const float scale = gdn_div(1.0f, sqrtf(gdn_div(sum, (float)dim) + eps));
    for (uint32_t i = threadIdx.x; i < dim; i += ENGINE_BLOCK) to[i] = gdn_to_bf16(gdn_to_f32(from[i]) * scale * w[i]);
}

GDN_KERNEL(ENGINE_BLOCK)
gdn_engine_add(const gdn_bf16 *x, gdn_bf16 *y, uint64_t n) {
    gdn_begin();
    gdn_let_next();
    const uint64_t i = (uint64_t)blockIdx.x * ENGINE_BLOCK + threadIdx.x;
    if (i < n) y[i] = gdn_to_bf16(gdn_to_f32(y[i]) + gdn_to_f32(x[i]));
}

GDN_KERNEL(ENGINE_BLOCK)
gdn_engine_silu_mul(const gdn_bf16 *gate_up, gdn_bf16 *y, uint32_t dim) {
    gdn_begin();
    gdn_let_next();
    const uint32_t i = blockIdx.x * ENGINE_BLOCK + threadIdx.x;
    if (i >= dim) return;
    const gdn_bf16 *const gate = gate_up + (uint64_t)blockIdx.y * 2 * dim, *const up = gate + dim;
    const float g = gdn_to_f32(gate[i]);
    const float silu = gdn_to_f32(gdn_to_bf16(gdn_div(g, 1.0f + gdn_exp(-g)))); /* two modules, two roundings */
    y[(uint64_t)blockIdx.y * dim + i] = gdn_to_bf16(silu * gdn_to_f32(up[i]));
}
