/* w4a4_quant.cu - quantises rows to NVFP4: f32 row factor, UE4M3 scale a block of 16, E2M1 codes. Contract: abi/gdn_op_w4a4.h.
 *
 *     Ag = amax/2688 (1 for an all-zero row);  s = ue4m3((gm/6)/Ag);  code = e2m1(x/(s*Ag))
 *
 * All f32 with IEEE division, ties to even: the bytes of kernels/cpu/w4a4_quant.c. A row with a NaN or Inf: Ag = NaN, codes and
 * scales 0. Portable. Grid M (a row a block), block 256, a thread a block of 16 codes at a time; the row is read twice, the second
 * time from the caches. Codes and scales go to the order of the projection's fragments (gdn_w4a4.cuh); rows past M of the last
 * block of eight are not written. Arguments: A bf16 [M][K], Aq, As, Ag, K; _ext: rows a_stride elements apart, on any 2-byte
 * boundary. */
#include "gdn_device.cuh"
#include "gdn_rows.cuh"
#include "gdn_w4a4.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* x >= 0, nearest even, saturating at 448. A subnormal that rounds up to 8/512 becomes code 8, the first normal one. */
GDN_DEVICE uint32_t to_ue4m3(float x) {
    if (x > 448.0f) return 0x7e;
    if (x < 0x1p-6f) return gdn_bits(x * 512.0f + 12582912.0f) & 15u; /* 1.5 * 2^23: the sum rounds to an integer */
    const uint32_t u = gdn_bits(x);
    return ((u + 0x7ffffu + (u >> 20 & 1u)) >> 20) - (120u << 3);
}
GDN_DEVICE float from_ue4m3(uint32_t s) {
    const uint32_t x = s >> 3, m = s & 7;
    return x ? gdn_float((x + 120) << 23 | m << 20) : (float)m * 0x1p-9f;
}
/* Decision points between 0, 0.5, 1, 1.5, 2, 3, 4, 6; a tie goes to the even code; the sign bit only on non-zero codes. */
GDN_DEVICE uint32_t to_e2m1(float x) {
    const float a = fabsf(x);
    const uint32_t code = (uint32_t)(a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return code | (code && x < 0 ? 8u : 0u);
}

/* Sixteen values as eight pairs. */
GDN_DEVICE void load_block(const gdn_bf16 *p, bool wide, uint32_t (&pair)[8]) {
    if (wide) {
        const uint4 lo = gdn_ld16_ro(p), hi = gdn_ld16_ro(p + 8);
        pair[0] = lo.x, pair[1] = lo.y, pair[2] = lo.z, pair[3] = lo.w;
        pair[4] = hi.x, pair[5] = hi.y, pair[6] = hi.z, pair[7] = hi.w;
    } else {
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++) pair[i] = p[2 * i].bits | (uint32_t)p[2 * i + 1].bits << 16;
    }
}
/* The largest magnitude, as the bits of a bf16: integers order like the values, NaN and Inf above all. */
GDN_DEVICE uint32_t block_max(const uint32_t (&pair)[8]) {
    uint32_t best = 0;
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) best = max(best, max(pair[i] & 0x7fffu, pair[i] >> 16 & 0x7fffu));
    return best;
}

GDN_DEVICE void quant_row(const gdn_bf16 *row, uint8_t *Aq, uint8_t *As, float *Ag, uint32_t K) {
    __shared__ uint32_t partial[WARPS];
    const uint32_t tid = threadIdx.x, m = blockIdx.x, blocks = K / GDN_W4A4_BLOCK, chunks = K / GDN_W4A4_CHUNK;
    const bool wide = gdn_aligned16(row);
    uint32_t best = 0, pair[8];
    for (uint32_t b = tid; b < blocks; b += THREADS) {
        load_block(row + b * GDN_W4A4_BLOCK, wide, pair);
        best = max(best, block_max(pair));
    }
    GDN_UNROLL
    for (int d = 16; d > 0; d >>= 1) best = max(best, __shfl_xor_sync(GDN_FULL_MASK, best, d));
    if (gdn_lane() == 0) partial[tid / 32] = best;
    gdn_sync_block();
    GDN_UNROLL
    for (uint32_t w = 0; w < WARPS; w++) best = max(best, partial[w]);
    const bool finite = best < 0x7f80u;
    const float ag = best ? gdn_div(gdn_float(best << 16), 2688.0f) : 1.0f;
    if (tid == 0) Ag[m] = finite ? ag : gdn_float(0x7fc00000u);
    for (uint32_t b = tid; b < blocks; b += THREADS) {
        load_block(row + b * GDN_W4A4_BLOCK, wide, pair);
        const float gm = gdn_float(block_max(pair) << 16);
        const uint32_t scale = finite && ag > 0 ? to_ue4m3(gdn_div(gdn_div(gm, 6.0f), ag)) : 0;
        const float step = from_ue4m3(scale) * ag;
        uint32_t code[2] = { 0, 0 };
        GDN_UNROLL
        for (uint32_t i = 0; i < 8; i++)
            if (step > 0)
                code[i / 4] |= (to_e2m1(gdn_div(gdn_bf16_lo(pair[i]), step)) | to_e2m1(gdn_div(gdn_bf16_hi(pair[i]), step)) << 4)
                               << (i % 4 * 8);
        const uint32_t chunk = b / GDN_W4A4_BLOCKS, in = b % GDN_W4A4_BLOCKS;
        *reinterpret_cast<uint32_t *>(Aq + gdn_w4a4_codes_at(chunks, m, chunk, in, 0)) = code[0];
        *reinterpret_cast<uint32_t *>(Aq + gdn_w4a4_codes_at(chunks, m, chunk, in, 1)) = code[1];
        As[gdn_w4a4_scale_at(chunks, m, chunk, in)] = (uint8_t)scale;
    }
}

GDN_KERNEL(THREADS) w4a4_quant_rows(const gdn_bf16 *A, uint8_t *Aq, uint8_t *As, float *Ag, uint32_t K) {
    gdn_begin();
    quant_row(A + (uint64_t)blockIdx.x * K, Aq, As, Ag, K);
}
GDN_KERNEL(THREADS) w4a4_quant_rows_ext(const gdn_bf16 *A, uint8_t *Aq, uint8_t *As, float *Ag, uint32_t K, uint32_t a_stride) {
    gdn_begin();
    quant_row(A + (uint64_t)blockIdx.x * a_stride, Aq, As, Ag, K);
}
