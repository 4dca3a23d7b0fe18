/* test_self_wrappers.cpp - what the wrappers compute on the emulator, against plain loops: conversions, exchange, fragments and
 * products of a warp. test_self_hopper.cpp has bulk copies and warpgroup products. */
#include "emu_check.hpp"
#include "emu_number.hpp"
#include "gdn_device.cuh"

/* ---- 16-bit types ---- */
static bool nearest_even(double x, double below, double got, double above, bool even) {
    const double e = std::fabs(x - got), b = std::fabs(x - below), a = std::fabs(x - above);
    return e <= b && e <= a && (even || (e < b && e < a));
}
static void conversions(emu::bench &b) {
    bool widen = true, back = true, f16 = true, bf16 = true;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = gdn_to_f32(gdn_f16 { (uint16_t)h }), g = gdn_to_f32(gdn_bf16 { (uint16_t)h }), e = emu::widen_f16((uint16_t)h);
        if (std::isnan(e)) {
            widen = widen && std::isnan(f);
            continue;
        }
        widen = widen && gdn_bits(f) == gdn_bits(e);
        back = back && gdn_to_f16(f).bits == h && (std::isnan(g) || gdn_to_bf16(g).bits == h);
    }
    for (int i = 0; i < 200000; i++) {
        const float x = gdn_float(b.bits()) * (i & 1 ? 1.0f : 0x1p-20f), y = b.uniform(-1, 1) * gdn_float((uint32_t)(100 + i % 45) << 23);
        if (std::isnan(x)) continue;
        const uint16_t hx = gdn_to_f16(y).bits, bx = gdn_to_bf16(x).bits;
        if ((hx & 0x7fff) > 0 && (hx & 0x7fff) < 0x7bff)
            f16 = f16 &&
                  nearest_even(y, emu::widen_f16((uint16_t)(hx - 1)), emu::widen_f16(hx), emu::widen_f16((uint16_t)(hx + 1)), hx % 2 == 0);
        if ((bx & 0x7fff) > 0 && (bx & 0x7fff) < 0x7f7f)
            bf16 = bf16 && nearest_even(x, emu::widen_bf16((uint16_t)(bx - 1)), emu::widen_bf16(bx), emu::widen_bf16((uint16_t)(bx + 1)),
                                        bx % 2 == 0);
    }
    b.expect(widen, "f16 widens exactly");
    b.expect(back, "widening and rounding is the identity");
    b.expect(f16, "f16 rounds to nearest even");
    b.expect(bf16, "bf16 rounds to nearest even");
    b.expect(!nearest_even(1.0, 0.5, 0.75, 1.0, true), "control: a value that is not the nearest is refused");
    b.expect(gdn_to_bf16(NAN).bits == 0x7fff && gdn_to_f16(NAN).bits == 0x7fff && gdn_to_f16(65520.0f).bits == 0x7c00 &&
                 gdn_to_f16(65519.0f).bits == 0x7bff,
             "NaN and overflow");
    b.expect(gdn_pack_bf16(1.0f, -2.0f) == 0xc0003f80u && gdn_pack_f16(1.0f, -2.0f) == 0xc0003c00u,
             "a pair: the first argument in the lower half");
    b.expect(gdn_rsqrt(64.0f) == 0.125f && gdn_bits(gdn_rsqrt(128.0f)) == 0x3db504f2u, "rsqrt of 64 and 128");
    b.expect(__byte_perm(0x03020100u, 0x07060504u, 0x6240) == 0x06020400u && __byte_perm(0x80u, 0, 0x8888) == 0xffffffffu, "byte_perm");
}

/* ---- exchange ---- */
__global__ static void all_shuffles(const uint32_t *x, uint32_t *o, int width, int operand) {
    const uint32_t t = threadIdx.x, v = x[t];
    const uint64_t wide = (uint64_t)v << 32 | ~v;
    o[t] = __shfl_sync(GDN_FULL_MASK, v, operand, width);
    o[32 + t] = __shfl_up_sync(GDN_FULL_MASK, v, (unsigned)operand, width);
    o[64 + t] = __shfl_down_sync(GDN_FULL_MASK, v, (unsigned)operand, width);
    o[96 + t] = __shfl_xor_sync(GDN_FULL_MASK, v, operand, width);
    o[128 + t] = (uint32_t)(__shfl_xor_sync(GDN_FULL_MASK, wide, operand, width) >> 32);
    o[160 + t] = t & 1 ? __ballot_sync(0xaaaaaaaau, v & 4) : __ballot_sync(0x55555555u, v & 8);
}
__global__ static void all_votes(const uint32_t *x, uint32_t *o) {
    const int p = x[threadIdx.x] & 1;
    const int n = __syncthreads_count(p), any = __syncthreads_or(p), all = __syncthreads_and(p), every = __syncthreads_and(1);
    o[threadIdx.x] = (uint32_t)(n * 8 + any * 4 + all * 2 + every);
    gdn_atomic_add(o + 128, 1u);
    gdn_atomic_max(o + 129, x[threadIdx.x]);
    gdn_atomic_or(o + 130, 1u << (threadIdx.x % 32));
}
static void exchange(emu::bench &b) {
    auto &x = b.input<uint32_t>("x", 128, [&](size_t) { return b.bits(); });
    auto &o = b.output<uint32_t>("o", 192);
    for (int width : { 32, 16, 8, 4 })
        for (int k : { 1, 2, 3, 7 }) {
            b.run("shuffles", 1, 32, 0, { o }, [&] { all_shuffles(x.p, o.p, width, k); });
            bool ok = true;
            for (int t = 0; t < 32; t++) {
                const int base = t / width * width, in = t % width;
                const uint32_t ballot_bit = t & 1 ? 4 : 8;
                uint32_t ballot = 0;
                for (int l = t & 1; l < 32; l += 2) ballot |= (x[(size_t)l] & ballot_bit ? 1u : 0u) << l;
                const int from[] = { base + k % width, in >= k ? t - k : t, in + k < width ? t + k : t,
                                     (t ^ k) < base + width ? t ^ k : t };
                for (int q = 0; q < 4; q++) ok = ok && o[(size_t)(32 * q + t)] == x[(size_t)from[q]];
                ok = ok && o[(size_t)(128 + t)] == x[(size_t)from[3]] && o[(size_t)(160 + t)] == ballot;
            }
            b.expect(ok, "shuffles and ballots");
        }
    auto &v = b.inout<uint32_t>("votes", 131, [](size_t) { return 0u; });
    b.run("votes", 1, 128, 0, { v }, [&] { all_votes(x.p, v.p); });
    uint32_t n = 0, most = 0;
    for (size_t t = 0; t < 128; t++) {
        n += x[t] & 1;
        most = std::max(most, x[t]);
    }
    bool ok = v[128] == 128 && v[129] == most && v[130] == 0xffffffffu;
    for (size_t t = 0; t < 128; t++) ok = ok && v[t] == n * 8 + (n != 0) * 4 + (n == 128) * 2 + 1;
    b.expect(ok, "votes of a block, atomics");
}

/* ---- copies ---- */
__global__ static void partial_copies(const unsigned char *x, unsigned char *o, uint32_t take) {
    GDN_DYN_SMEM(unsigned char, s);
    const uint32_t t = threadIdx.x;
    gdn_cp_async16(s + 32 * t, x + 16 * t, take);
    gdn_cp_async8(s + 32 * t + 16, x + 8 * t, take % 9);
    gdn_cp_async_commit();
    gdn_cp_async4(s + 32 * t + 24, x + 4 * t, take % 5);
    gdn_cp_async4(s + 32 * t + 28, x + 4 * t);
    gdn_cp_async_commit();
    gdn_cp_async_wait<1>();
    for (uint32_t i = 0; i < 24; i++) o[32 * t + i] = s[32 * t + i];
    gdn_cp_async_wait<0>();
    for (uint32_t i = 24; i < 32; i++) o[32 * t + i] = s[32 * t + i];
}
static void copies(emu::bench &b) {
    auto &x = b.input<unsigned char>("x", 16 * 32, [&](size_t) { return (unsigned char)(1 + b.bits() % 255); });
    auto &o = b.output<unsigned char>("o", 32 * 32);
    for (uint32_t take : { 0u, 5u, 8u, 16u }) {
        b.run("cp.async", 1, 32, 1024, { o }, [&] { partial_copies(x.p, o.p, take); });
        bool ok = true;
        for (uint32_t t = 0; t < 32; t++)
            for (uint32_t i = 0; i < 32; i++) {
                const uint32_t at = i < 16 ? i : i < 24 ? i - 16 : i < 28 ? i - 24 : i - 28, size = i < 16 ? 16 : i < 24 ? 8 : 4;
                const uint32_t n = i < 16 ? take : i < 24 ? take % 9 : i < 28 ? take % 5 : 4;
                ok = ok && o[32 * t + i] == (at < n ? x[size * t + at] : 0);
            }
        b.expect(ok, "cp.async copies what it is asked to and fills with zero");
    }
}

/* ---- fragments: A row-major, B column-major, 16-bit ---- */
template <bool F16> static __global__ void one_mma(const uint16_t *a, const uint16_t *b, float *d) {
    GDN_DYN_SMEM(uint16_t, s); /* A [16][16], then B^T [8][16] */
    const uint32_t l = threadIdx.x, g = l / 4, t = l % 4;
    for (uint32_t i = l; i < 256; i += 32) s[i] = a[i];
    for (uint32_t i = l; i < 128; i += 32) s[256 + i] = b[i];
    __syncthreads();
    uint32_t fa[4], fb[2];
    float acc[4] = { d[g * 8 + 2 * t], d[g * 8 + 2 * t + 1], d[(g + 8) * 8 + 2 * t], d[(g + 8) * 8 + 2 * t + 1] };
    gdn_ldmatrix_x4(fa, s + (l % 16) * 16 + l / 16 * 8);
    gdn_ldmatrix_x2(fb, s + 256 + (l % 8) * 16 + l / 8 % 2 * 8);
    if (F16)
        gdn_mma_f16_m16n8k16(acc, fa, fb);
    else
        gdn_mma_bf16_m16n8k16(acc, fa, fb);
    for (uint32_t q = 0; q < 4; q++) d[(g + q / 2 * 8) * 8 + 2 * t + q % 2] = acc[q];
}
template <bool F16> static void product(emu::bench &b) {
    auto half = [&](size_t) { return F16 ? gdn_to_f16(b.uniform(-2, 2)).bits : gdn_to_bf16(b.uniform(-2, 2)).bits; };
    auto value = [](uint16_t x) { return (double)(F16 ? emu::widen_f16(x) : emu::widen_bf16(x)); };
    auto &x = b.input<uint16_t>(F16 ? "A f16" : "A", 256, half);
    auto &y = b.input<uint16_t>(F16 ? "B f16" : "B", 128, half);
    auto &d = b.inout<float>(F16 ? "D f16" : "D", 128, [&](size_t) { return b.uniform(-1, 1); });
    std::vector<double> want(128), turned(128), got(128);
    for (size_t i = 0; i < 16; i++)
        for (size_t j = 0; j < 8; j++) {
            want[i * 8 + j] = turned[i * 8 + j] = d[i * 8 + j];
            for (size_t k = 0; k < 16; k++) {
                want[i * 8 + j] += value(x[i * 16 + k]) * value(y[j * 16 + k]);
                turned[i * 8 + j] += value(x[k * 16 + i]) * value(y[j * 16 + k]);
            }
        }
    b.run("mma", 1, 32, 768, { d }, [&] { one_mma<F16>(x.p, y.p, d.p); });
    for (size_t i = 0; i < 128; i++) got[i] = d[i];
    b.close("m16n8k16 against loops", got, want, 1e-7, 1e-5);
    double off = 0;
    for (size_t i = 0; i < 128; i++) off = std::fmax(off, std::fabs(got[i] - turned[i]));
    b.expect(off > 1e-3, "control: A transposed is another product");
}

/* ---- ldmatrix and stmatrix: four 8x8 matrices, each a run of 64 elements ---- */
__global__ static void matrices(const uint16_t *x, uint32_t *o) {
    GDN_DYN_SMEM(uint16_t, s);
    const uint32_t l = threadIdx.x;
    for (uint32_t i = l; i < 256; i += 32) s[i] = x[i];
    __syncwarp();
    const uint16_t *row = s + l * 8;
    uint32_t r[4], h[2], q[1];
    auto put = [&](uint32_t at, const uint32_t *v, uint32_t n) {
        for (uint32_t i = 0; i < n; i++) o[(at + i) * 32 + l] = v[i];
    };
    gdn_ldmatrix_x4(r, row), put(0, r, 4);
    gdn_ldmatrix_x4_trans(r, row), put(4, r, 4);
    gdn_ldmatrix_x2(h, row), put(8, h, 2);
    gdn_ldmatrix_x2_trans(h, row), put(10, h, 2);
    gdn_ldmatrix_x1(q, row), put(12, q, 1);
    gdn_ldmatrix_x1_trans(q, row), put(13, q, 1);
    __syncwarp();
    gdn_ldmatrix_x4(r, row);
    gdn_stmatrix_x4_trans(s + 256 + l * 8, r); /* every matrix transposed */
    gdn_stmatrix_x4(s + 512 + l * 8, r);       /* as it was */
    __syncwarp();
    for (uint32_t i = l; i < 256; i += 32) o[14 * 32 + i] = s[256 + i] | (uint32_t)s[512 + i] << 16;
}
static void fragments(emu::bench &b) {
    auto &x = b.input<uint16_t>("x", 256, [](size_t i) { return (uint16_t)(i * 257 + 1); });
    auto &o = b.output<uint32_t>("o", 22 * 32);
    b.run("matrices", 1, 32, 3 * 512, { o }, [&] { matrices(x.p, o.p); });
    bool ok = true;
    auto pair = [&](size_t m, size_t l, bool trans) {
        const size_t i = l / 4, j = 2 * (l % 4);
        return trans ? x[m * 64 + j * 8 + i] | (uint32_t)x[m * 64 + (j + 1) * 8 + i] << 16
                     : x[m * 64 + i * 8 + j] | (uint32_t)x[m * 64 + i * 8 + j + 1] << 16;
    };
    for (size_t l = 0; l < 32; l++) {
        for (size_t m = 0; m < 4; m++) ok = ok && o[m * 32 + l] == pair(m, l, false) && o[(4 + m) * 32 + l] == pair(m, l, true);
        for (size_t m = 0; m < 2; m++) ok = ok && o[(8 + m) * 32 + l] == pair(m, l, false) && o[(10 + m) * 32 + l] == pair(m, l, true);
        ok = ok && o[12 * 32 + l] == pair(0, l, false) && o[13 * 32 + l] == pair(0, l, true);
    }
    for (size_t i = 0; i < 256; i++) ok = ok && o[14 * 32 + i] == (x[i / 64 * 64 + i % 8 * 8 + i / 8 % 8] | (uint32_t)x[i] << 16);
    b.expect(ok, "ldmatrix and stmatrix");
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("conversions", conversions);
    c.test("exchange", exchange);
    c.test("cp.async", copies);
    c.test("mma bf16", product<false>);
    c.test("mma f16", product<true>);
    c.test("fragments", fragments);
    return c.done();
}
