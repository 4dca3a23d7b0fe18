/* gdn_mma_fp4.cuh - the block-scaled FP4 product of one warp (sm_121a, sm_121f). All 32 lanes take part.
 *
 * D[16][8] += (A * SA)[16][64] (B * SB)[64][8]: E2M1 codes, one UE4M3 scale for 16 consecutive k of a row of A or a column of B, f32
 * accumulators. With g = lane / 4 and t = lane % 4, eight codes a word, the smallest k in the lowest nibble, a lane holds
 *   a[i] = A(g + 8 (i & 1), 8t + 32 (i >> 1) ..)      b[i] = B(8t + 32 i .., g)      d[i] = D(g + 8 (i >> 1), 2t + (i & 1))
 * and scales, byte j for k block j: sa of row r comes from lane 4 (r & 7) + 2 TA + (r >> 3), sb of column n from lane 4n + TB. The
 * selectors let one word a lane carry the scales of two products (TA 0, 1) or four (TB 0..3).
 *
 * Where the instruction does not exist (GDN_FP4_MODEL; the emulator) its exact model runs instead: the four dots are exact; dot * SA *
 * SB has the exponent of its scales; these terms and D are aligned to the largest exponent and truncated toward zero at 35 fraction
 * bits, summed exactly, and the sum is truncated to f32. A NaN scale gives NaN. The sign bit of a scale is not looked at. */
#pragma once
#include "gdn_warp.cuh"

#if defined(GDN_EMU) || defined(GDN_FP4_MODEL)
/* Twice the value of a code. */
GDN_DEVICE int gdn__e2m1_twice(uint32_t code) {
    const int v = (int)(0xC8643210u >> (4 * (code & 7)) & 15);
    return code & 8 ? -v : v;
}
/* A scale as m * 2^(e - 3); zero has the exponent of nothing. */
GDN_DEVICE void gdn__ue4m3_parts(uint32_t byte, int &m, int &e) {
    const int x = (int)(byte >> 3 & 15);
    m = (int)(byte & 7) + (x ? 8 : 0);
    e = x ? x - 7 : m ? -6 : -126;
}
GDN_DEVICE bool gdn__ue4m3_nan(uint32_t word) { /* of four */
    const uint32_t w = word & 0x7f7f7f7fu;
    return ((w + 0x01010101u) & 0x80808080u) != 0;
}
/* sum * 2^(mx - 35) toward zero; |sum| is below 2^50 and the value, unless 0, far above the subnormals. */
GDN_DEVICE float gdn__fp4_truncate(int64_t sum, int mx) {
    const uint64_t a = sum < 0 ? (uint64_t)-sum : (uint64_t)sum;
    const uint32_t high = (uint32_t)(a >> 32), low = (uint32_t)a;
    if (a == 0) return 0;
    const int top = high ? 63 - __clz((int)high) : 31 - __clz((int)low);
    const uint32_t mantissa = (uint32_t)(top >= 23 ? a >> (top - 23) : a << (23 - top));
    return gdn_float((sum < 0 ? 0x80000000u : 0u) | (uint32_t)(top + mx - 35 + 127) << 23 | (mantissa & 0x7fffffu));
}
/* One output. dot: of four blocks, times 4. */
GDN_DEVICE float gdn__fp4_step(float c, const int (&dot)[4], uint32_t sa, uint32_t sb) {
    const uint32_t u = gdn_bits(c), ex = u >> 23 & 255u;
    if (ex == 255 || gdn__ue4m3_nan(sa) || gdn__ue4m3_nan(sb)) return gdn_float(0x7fffffffu);
    const int64_t mc = (int64_t)((u & 0x7fffffu) | (ex ? 0x800000u : 0u));
    const int ec = ex ? (int)ex - 127 : -126;
    int num[4], e[4], mx = ec;
    GDN_UNROLL
    for (int b = 0; b < 4; b++) {
        int m0, e0, m1, e1;
        gdn__ue4m3_parts(sa >> (8 * b), m0, e0);
        gdn__ue4m3_parts(sb >> (8 * b), m1, e1);
        num[b] = dot[b] * m0 * m1;
        e[b] = e0 + e1;
        mx = e[b] > mx ? e[b] : mx;
    }
    int64_t sum = 0;
    GDN_UNROLL
    for (int b = 0; b < 5; b++) { /* units of 2^(mx - 35) */
        const int64_t v = b == 4 ? mc : num[b & 3] < 0 ? -(int64_t)num[b & 3] : (int64_t)num[b & 3];
        const int sh = b == 4 ? 12 + ec - mx : 27 + e[b & 3] - mx;
        const int64_t t = sh >= 0 ? v << sh : sh > -63 ? v >> -sh : 0;
        sum += (b == 4 ? u >> 31 != 0 : num[b & 3] < 0) ? -t : t;
    }
    return gdn__fp4_truncate(sum, mx);
}
/* Not inlined on a device: a kernel of many products would take minutes to compile. */
#ifdef GDN_EMU
#define GDN__FP4_MODEL GDN_DEVICE
#else
#define GDN__FP4_MODEL static __device__ __noinline__
#endif
GDN__FP4_MODEL float4 gdn__fp4_model(float4 c, uint4 a4, uint2 b2, uint32_t sa, uint32_t sb, int ta, int tb) {
    const uint32_t a[4] = { a4.x, a4.y, a4.z, a4.w }, b[2] = { b2.x, b2.y };
    float d[4] = { c.x, c.y, c.z, c.w };
    const int lane = (int)gdn_lane(), g = lane >> 2, t = lane & 3;
    int dot[4][4] = {}; /* [output][block] */
    GDN_NO_UNROLL
    for (int q = 0; q < 4; q++) { /* lane q of each quad: k = 8q.. and 32 + 8q.., blocks q / 2 and 2 + q / 2 */
        uint32_t row[4];
        GDN_UNROLL
        for (int i = 0; i < 4; i++) row[i] = __shfl_sync(GDN_FULL_MASK, a[i], 4 * g + q);
        GDN_UNROLL
        for (int i = 0; i < 4; i++) { /* column j of this lane's two, half s */
            const int j = i >> 1, s = i & 1;
            const uint32_t column = __shfl_sync(GDN_FULL_MASK, b[s], 4 * (2 * t + j) + q);
            GDN_UNROLL
            for (int r = 0; r < 2; r++) {
                int x = 0;
                GDN_UNROLL
                for (int k = 0; k < 32; k += 4) x += gdn__e2m1_twice(row[2 * s + r] >> k) * gdn__e2m1_twice(column >> k);
                dot[2 * r + j][2 * s] += q < 2 ? x : 0;
                dot[2 * r + j][2 * s + 1] += q < 2 ? 0 : x;
            }
        }
    }
    uint32_t rows[2], columns[2];
    GDN_UNROLL
    for (int i = 0; i < 2; i++) {
        rows[i] = __shfl_sync(GDN_FULL_MASK, sa, 4 * g + 2 * ta + i);
        columns[i] = __shfl_sync(GDN_FULL_MASK, sb, 4 * (2 * t + i) + tb);
    }
    GDN_UNROLL
    for (int o = 0; o < 4; o++) d[o] = gdn__fp4_step(d[o], dot[o], rows[o >> 1], columns[o & 1]);
    return float4 { d[0], d[1], d[2], d[3] };
}
template <int TA, int TB>
GDN_DEVICE void gdn_mma_mxf4nvf4_m16n8k64(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], uint32_t sa, uint32_t sb) {
    const float4 r =
        gdn__fp4_model(float4 { d[0], d[1], d[2], d[3] }, uint4 { a[0], a[1], a[2], a[3] }, uint2 { b[0], b[1] }, sa, sb, TA, TB);
    d[0] = r.x, d[1] = r.y, d[2] = r.z, d[3] = r.w;
}
#else
template <int TA, int TB>
GDN_DEVICE void gdn_mma_mxf4nvf4_m16n8k64(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], uint32_t sa, uint32_t sb) {
    asm volatile("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {0, %12}, %11, {0, %13};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(sa), "r"(sb), "n"(TA), "n"(TB));
}
#endif
