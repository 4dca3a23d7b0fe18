/* w4a4_gemv_f16_wide.cu - NVFP4 x NVFP4 projection of 17 to 64 rows where there are no FP4 tensor cores: as w4a4_gemv_f16.cu, with the
 * products of a warpgroup. Contract: abi/gdn_op_w4a4.h.
 *
 *     C[m][n] = bf16( acc * (Ag[m]*scale2) )
 *
 * A group of four warps has 64 weight rows, the product's A side: codes become f16 in registers, and come DEPTH - 1 chunks of 128 k ahead
 * by cp.async, each lane its own. The tokens are the B side: one or two more groups (EXPANDERS) turn them into f16, a step each in turn, in
 * STAGES tiles of shared memory. Nobody waits for anybody else than through the tiles' barriers.
 *
 * f16_32, f16_64: 4 and 8 blocks of eight tokens, two expanders, 1 to 3 groups. _x5: one expander, up to 5 groups, for many rows a
 * multiprocessor. _k2: two groups share 64 rows and each has every second chunk, for few; exactly 2 groups.
 *
 * Order: one sum over all chunks, ascending, in eight products each; _k2: two, over the even and the odd chunks, added in this order. So
 * the results are those of w4a4_gemv_f16.cu but for the summation in f32.
 *
 * Block 128 * (groups + expanders), grid ceil(N / (64 * groups)), of _k2 ceil(N / 64). Dynamic shared memory, tokens T, parts P:
 * T * P * (1024 + 216 * expanders) + 128 + 20480 * groups. Arguments: those of w4a4_gemv_mx.cu. */
#include "gdn_device.cuh"
#include "gdn_hopper.cuh"
#include "gdn_w4a4_f16.cuh"
#include "gdn_w4a4_sums.cuh"

namespace wide {
enum { RAW_STEPS = 3, DEPTH = 4, STAGES = 4, WEIGHTS = 1280 /* 1024 of codes, each lane's scales of its two rows */ };
struct operands {
    const uint8_t *Aq, *As;
    const float *Ag;
    const uint8_t *Bq, *Bs;
    float scale2;
    gdn_bf16 *C;
    uint32_t M, N, K;
};
template <int TOKENS, int SPLIT, int EXPANDERS> struct layout {
    static constexpr uint32_t SLOT = TOKENS * 256, RAW = TOKENS * 72, BLOCKS = TOKENS / 8;
    uint8_t *smem;
    __device__ __forceinline__ uint8_t *tile(uint32_t step, uint32_t part) const { return smem + (step % STAGES * SPLIT + part) * SLOT; }
    __device__ __forceinline__ uint8_t *raw(uint32_t group, uint32_t slot) const {
        return smem + STAGES * SPLIT * SLOT + (group * RAW_STEPS + slot) * (SPLIT * RAW);
    }
    __device__ __forceinline__ gdn_mbarrier *bars() const { return reinterpret_cast<gdn_mbarrier *>(raw(EXPANDERS, 0)); }
    __device__ __forceinline__ gdn_mbarrier &full(uint32_t step) const { return bars()[step % STAGES]; }
    __device__ __forceinline__ gdn_mbarrier &empty(uint32_t step) const { return bars()[STAGES + step % STAGES]; }
    __device__ __forceinline__ uint8_t *weights(uint32_t warp) const { return raw(EXPANDERS, 0) + 128 + warp * (DEPTH * WEIGHTS); }
};

/* ---- tokens: codes in shared memory to f16 in a tile of gdn_wgmma.cuh ---- */
/* A thread's part of a block of eight tokens: word q of lanes 2p and 2p + 1 of token n's fragment. Product 2q + b has code b + 4e of that
 * word of lane t at place 2t + e, and code b + 1 + 4e at place 2t + 8 + e, as on the weights' side. */
template <int TOKENS> struct expander {
    uint32_t code, scale, to, select;
    static __device__ __forceinline__ expander of(uint32_t thread) {
        const uint32_t p = thread & 1, n = thread >> 1 & 7, q = thread >> 4 & 3, j = q >> 1;
        return { (4 * n + 2 * p + (q & 1)) * 16 + 8 * j, TOKENS * 64 + n * 8 + 4 * j,
                 j * (TOKENS * 128) + gdn_swizzle128(n * 128 + (q & 1) * 64) + 8 * p, p ? 0x4431u : 0x4420u };
    }
    /* Every second block from the first on. */
    __device__ __forceinline__ void run(uint8_t *tile, const uint8_t *raw, uint32_t first) const {
        const uint8_t *const codes = raw + first * GDN_W4A4_CODE_BYTES + code, *const scales = raw + first * GDN_W4A4_SCALE_BYTES + scale;
        GDN_UNROLL
        for (uint32_t k = 0; k < TOKENS / 16; k++) {
            const uint2 w = gdn_ld8(codes + k * (2 * GDN_W4A4_CODE_BYTES));
            const uint32_t s =
                gdn_ue4m3_two(__byte_perm(*reinterpret_cast<const uint32_t *>(scales + k * (2 * GDN_W4A4_SCALE_BYTES)), 0, select));
            uint32_t a[4], b[4];
            gdn_e2m1x8(w.x, a);
            gdn_e2m1x8(w.y, b);
            GDN_UNROLL
            for (uint32_t i = 0; i < 4; i++) /* the swizzle leaves bits 4 and 5 to us: they were 0 */
                gdn_st8(tile + ((first * 1024 + to) ^ 16 * i) + k * 2048,
                        uint2 { gdn_scale_f16x2(a[i], s, 0), gdn_scale_f16x2(b[i], s, 1) });
        }
    }
};

template <int TOKENS, int SPLIT, int EXPANDERS>
GDN_DEVICE void expand(const operands &o, const layout<TOKENS, SPLIT, EXPANDERS> &at, uint32_t chunks, uint32_t steps) {
    constexpr uint32_t BLOCKS = TOKENS / 8, RAW = TOKENS * 72;
    const uint32_t group = gdn_warp() / 4, warp = gdn_warp() % 4, lane = gdn_lane(), last = (o.M - 1) / GDN_W4A4_TOKENS;
    const expander<TOKENS> mine = expander<TOKENS>::of(threadIdx.x);
    auto fetch = [&](uint32_t step, uint32_t slot) {
        GDN_UNROLL
        for (uint32_t p = 0; p < SPLIT; p++) {
            const uint32_t x = step * SPLIT + p;
            uint8_t *const to = at.raw(group, slot) + p * RAW;
            if (x >= chunks) break;
            GDN_UNROLL
            for (uint32_t k = 0; k < (BLOCKS + 3) / 4; k++) {
                const uint32_t block = warp + 4 * k, from = min(block, last) * chunks + x;
                if (BLOCKS % 4 && block >= BLOCKS) break;
                gdn_cp_async16(to + block * GDN_W4A4_CODE_BYTES + 16 * lane, o.Aq + (from * GDN_W4A4_CODE_BYTES + 16 * lane));
                if (lane < 16)
                    gdn_cp_async4(to + TOKENS * 64 + block * GDN_W4A4_SCALE_BYTES + 4 * lane,
                                  o.As + (from * GDN_W4A4_SCALE_BYTES + 4 * lane));
            }
        }
        gdn_cp_async_commit();
    };
    uint32_t slot = 0, free = 2;
    fetch(group, 0);
    fetch(group + EXPANDERS, 1);
    gdn_bar_sync(2 + EXPANDERS, blockDim.x); /* the weights are asked for behind the tokens, which would wait for them */
    GDN_NO_UNROLL
    for (uint32_t step = group; step < steps; step += EXPANDERS) {
        gdn_cp_async_wait<1>();
        gdn_bar_sync(1 + group, 128);
        gdn_mbar_wait(at.empty(step), (step / STAGES & 1) ^ 1);
        GDN_UNROLL
        for (uint32_t p = 0; p < SPLIT; p++)
            if (SPLIT == 1 || step * SPLIT + p < chunks) mine.run(at.tile(step, p), at.raw(group, slot) + p * RAW, warp / 2);
        gdn_fence_async();
        gdn_mbar_arrive(at.full(step));
        fetch(step + 2 * EXPANDERS, free); /* behind the fence, which waits for what was asked before it */
        free = slot;
        slot = slot + 1 == RAW_STEPS ? 0 : slot + 1;
    }
    gdn_cp_async_wait<0>();
}

/* ---- weights ---- */
/* Products 4j..4j+3 of a chunk: block 2t + j of rows g and g + 8. */
GDN_DEVICE void decode(const uint2 (&w)[2], uint32_t j, const uint32_t (&scale)[2], uint32_t (&a)[16]) {
    GDN_UNROLL
    for (uint32_t k = 0; k < 4; k++) { /* row i, word q */
        const uint32_t i = k % 2, q = k / 2;
        uint32_t h[4];
        gdn_e2m1x8(q ? w[i].y : w[i].x, h);
        GDN_UNROLL
        for (uint32_t r = 0; r < 4; r++) a[8 * q + (r / 2) * 4 + (r % 2) * 2 + i] = gdn_scale_f16x2(h[r], scale[i], (int)j);
    }
}

/* TURNS: of A's registers, so that codes become f16 while products run. */
template <int TURNS, int TOKENS, int SPLIT, int EXPANDERS>
GDN_DEVICE void multiply(const operands &o, const layout<TOKENS, SPLIT, EXPANDERS> &at, uint32_t chunks, uint32_t steps) {
    constexpr uint32_t R = TOKENS / 2;
    const uint32_t warp = gdn_warp() - 4 * EXPANDERS, lane = gdn_lane(), t = lane % 4, part = warp / 4 % SPLIT;
    const uint32_t first = blockIdx.x * ((blockDim.x / 128 - EXPANDERS) / SPLIT) * 64;
    const uint32_t row0 = first + warp / 4 / SPLIT * 64 + warp % 4 * 16 + lane / 4;
    uint8_t *const mine = at.weights(warp);
    /* From the block's first row, whose offset may not fit 32 bits. */
    const uint8_t *const codes = o.Bq + (uint64_t)first * (o.K / 2), *const scales = o.Bs + (uint64_t)first * (o.K / 16);
    const uint32_t row[2] = { (min(row0, o.N - 1) - first) * (o.K / 2) + 16 * t, (min(row0 + 8, o.N - 1) - first) * (o.K / 2) + 16 * t };
    auto fetch = [&](uint32_t step) {
        const uint32_t c = step * SPLIT + part;
        if (c < chunks) {
            uint8_t *const to = mine + step % DEPTH * WEIGHTS;
            GDN_UNROLL
            for (uint32_t i = 0; i < 2; i++) {
                const uint32_t from = row[i] + c * 64;
                gdn_cp_async16(to + i * 512 + lane * 16, codes + from);
                gdn_cp_async4(to + 1024 + i * 128 + lane * 4, scales + (from >> 3 & ~3u));
            }
        }
        gdn_cp_async_commit();
    };
    float acc[R];
    GDN_UNROLL
    for (uint32_t r = 0; r < R; r++) acc[r] = 0;
    gdn_bar_sync(2 + EXPANDERS, blockDim.x);
    GDN_UNROLL
    for (uint32_t d = 0; d + 1 < DEPTH; d++) fetch(d);
    GDN_NO_UNROLL
    for (uint32_t i = 0; i < steps; i++) {
        fetch(i + DEPTH - 1);
        gdn_cp_async_wait<DEPTH - 1>();
        if (SPLIT == 1 || i * SPLIT + part < chunks) {
            const uint8_t *const slot = mine + i % DEPTH * WEIGHTS;
            uint32_t s[2], a[TURNS][16];
            uint2 w[2][2];
            const gdn_tile_k tile = gdn_make_tile_k(at.tile(i, part));
            GDN_UNROLL
            for (uint32_t k = 0; k < 2; k++) {
                const uint4 v = gdn_ld16(slot + k * 512 + lane * 16);
                w[0][k] = uint2 { v.x, v.y };
                w[1][k] = uint2 { v.z, v.w };
                s[k] = gdn_ue4m3_two(*reinterpret_cast<const uint16_t *>(slot + 1024 + k * 128 + lane * 4 + t % 2 * 2));
            }
            GDN_UNROLL
            for (uint32_t j = 0; j < 2; j++) {
                decode(w[j], j, s, a[j % TURNS]);
                if (j == 0) gdn_mbar_wait(at.full(i), i / STAGES & 1);
                gdn_wgmma_fence();
                GDN_UNROLL
                for (uint32_t k = 0; k < 4; k++)
                    gdn_wgmma_f16(acc, gdn_quad(a[j % TURNS], 4 * (int)k), gdn_move(tile, j * (TOKENS * 128) + k * 32), true);
                gdn_wgmma_commit();
                if (j || TURNS == 1) {
                    gdn_wgmma_wait<0>();
                    gdn_pin(acc);
                }
            }
            if (lane == 0)
                gdn_mbar_arrive(at.empty(i)); /* a part without a chunk in the last step has not waited, and nobody waits for it */
        }
    }
    gdn_cp_async_wait<0>();
    if (SPLIT > 1) { /* the other parts' sums, in order */
        const uint32_t threads = blockDim.x - 128 * EXPANDERS;
        float *const sums = reinterpret_cast<float *>(at.smem) + warp / 4 * (R * 128) + threadIdx.x % 128;
        gdn_bar_sync(1 + EXPANDERS, threads);
        GDN_UNROLL
        for (uint32_t r = 0; part && r < R; r++) sums[r * 128] = acc[r];
        gdn_bar_sync(1 + EXPANDERS, threads);
        if (part) return;
        GDN_UNROLL
        for (uint32_t k = R; k < SPLIT * R; k++) acc[k % R] += sums[k * 128];
    }
    GDN_UNROLL
    for (uint32_t r = 0; r < R; r++) {
        const uint32_t m = r / 4 * 8 + 2 * t + r % 2, n = row0 + r % 4 / 2 * 8;
        if (m < o.M && n < o.N) o.C[(uint64_t)m * o.N + n] = gdn_to_bf16(acc[r] * GDN_W4A4_F16_UNIT * (o.Ag[m] * o.scale2));
    }
}

template <int TOKENS, int SPLIT, int EXPANDERS, int TURNS> GDN_DEVICE void project(const operands &o) {
    GDN_DYN_SMEM_ALIGNED(uint8_t, smem, 1024);
    const layout<TOKENS, SPLIT, EXPANDERS> at = { smem };
    const uint32_t chunks = o.K / GDN_W4A4_CHUNK, steps = (chunks + SPLIT - 1) / SPLIT;
    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < STAGES; s++) {
            gdn_mbar_init(at.full(s), 128);
            gdn_mbar_init(at.empty(s), blockDim.x / 32 - 4 * EXPANDERS);
        }
        gdn_mbar_init_fence();
    }
    if (gdn_warp() < 4 * EXPANDERS)
        expand(o, at, chunks, steps);
    else
        multiply<TURNS>(o, at, chunks, steps);
}
} // namespace wide

#define WIDE_(name, TOKENS, SPLIT, EXPANDERS, THREADS, TURNS)                                                                    \
    GDN_KERNEL(THREADS, 1)                                                                                                       \
    name(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2, gdn_bf16 *C, \
         uint32_t M, uint32_t N, uint32_t K) {                                                                                   \
        wide::project<TOKENS, SPLIT, EXPANDERS, TURNS>(wide::operands { Aq, As, Ag, Bq, Bs, scale2, C, M, N, K });               \
    }
WIDE_(w4a4_gemv_f16_32, 32, 1, 2, 640, 2)
WIDE_(w4a4_gemv_f16_64, 64, 1, 2, 640, 2)
WIDE_(w4a4_gemv_f16_32_x5, 32, 1, 1, 768, 2)
WIDE_(w4a4_gemv_f16_64_x5, 64, 1, 1, 768, 1)
WIDE_(w4a4_gemv_f16_32_k2, 32, 2, 2, 512, 2)
WIDE_(w4a4_gemv_f16_64_k2, 64, 2, 2, 512, 2)
