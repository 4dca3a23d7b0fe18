/* test_ssm_ba_gates.cpp - the BA projection: parent, gemv and Hopper twin give the same bytes, which are those of a plain walk of the
 * contract's order; tensor cores and parent against f64. The tensor-core source is compiled here once a width. */
#include "emu_check.hpp"
#include "gdn_cluster.cuh"
#include "gdn_hopper.cuh"
#include "gdn_wgmma_n96.cuh"
#include "ssm_ba_gates_hopper.cu"
#include "ssm_preprocess.cu"

/* Fewer parts, so that a cluster fits the emulator's one block. */
#undef GDN_BA_TC_SPLIT
#undef GDN_BA_TC_STAGES
#define GDN_BA_TC_STAGES(columns) 3u
#define GDN_BA_TC_SPLIT           3
namespace c32 {
#define GDN_BA_TC_COLUMNS              32
#define dense_gemm_ba_gates_prefill_tc ba_tc_32
#include "ssm_ba_gates_tc.cu"
#undef dense_gemm_ba_gates_prefill_tc
#undef GDN_BA_TC_COLUMNS
} // namespace c32
namespace c96 {
#define GDN_BA_TC_COLUMNS              96
#define dense_gemm_ba_gates_prefill_tc ba_tc_96
#include "ssm_ba_gates_tc.cu"
#undef dense_gemm_ba_gates_prefill_tc
#undef GDN_BA_TC_COLUMNS
} // namespace c96
namespace c128 {
#define GDN_BA_TC_COLUMNS              128
#define dense_gemm_ba_gates_prefill_tc ba_tc_128
#include "ssm_ba_gates_tc.cu"
#undef dense_gemm_ba_gates_prefill_tc
#undef GDN_BA_TC_COLUMNS
} // namespace c128
#undef GDN_BA_TC_SPLIT
#undef GDN_BA_TC_STAGES
#define GDN_BA_TC_STAGES(columns) 5u /* deeper, two parts */
#define GDN_BA_TC_SPLIT           2
namespace c64 {
#define GDN_BA_TC_COLUMNS              64
#define dense_gemm_ba_gates_prefill_tc ba_tc_64
#include "ssm_ba_gates_tc.cu"
#undef dense_gemm_ba_gates_prefill_tc
#undef GDN_BA_TC_COLUMNS
} // namespace c64
namespace c96d {
#define GDN_BA_TC_COLUMNS              96
#define dense_gemm_ba_gates_prefill_tc ba_tc_96d
#include "ssm_ba_gates_tc.cu"
#undef dense_gemm_ba_gates_prefill_tc
#undef GDN_BA_TC_COLUMNS
} // namespace c96d

struct width {
    uint32_t rows, split, smem;
    void (*kernel)(const gdn_bf16 *, const gdn_bf16 *, const float *, const float *, float *, uint32_t, uint32_t, uint32_t, uint32_t,
                   uint32_t, uint32_t, uint32_t);
};
#define WIDTH(space, entry) \
    { space::ROWS, space::SPLIT, space::BYTES, entry }
static const width w32 = WIDTH(c32, c32::ba_tc_32), w64 = WIDTH(c64, c64::ba_tc_64), w96 = WIDTH(c96, c96::ba_tc_96),
                   w96d = WIDTH(c96d, c96d::ba_tc_96d), w128 = WIDTH(c128, c128::ba_tc_128);

/* ---- a problem; outputs are in rows of their own stride, and what lies between the rows must stay ---- */
struct problem {
    uint32_t M, N, K, vpg, pad; /* pad: elements of K_stride beyond K, and floats of gate_stride beyond N */
};
static const float UNTOUCHED = -7.0f;
struct data {
    problem p;
    uint32_t nv, K_stride, gate_stride;
    gdn_bf16 *A, *B;
    float *A_log, *dt;
    data(emu::bench &b, const problem &s) : p(s), nv(s.N / 2), K_stride(s.K + s.pad), gate_stride(s.N + s.pad) {
        /* the pad is a NaN: read by mistake it shows */
        A = b.input<gdn_bf16>("A", (size_t)s.M * K_stride, [&](size_t i) {
                 return i % K_stride < p.K ? gdn_to_bf16(b.uniform(-1, 1)) : gdn_bf16 { 0x7fff };
             }).p;
        B = b.input<gdn_bf16>("B", (size_t)s.N * s.K, [&](size_t) { return gdn_to_bf16(b.uniform(-0.06f, 0.06f)); }).p;
        A_log = b.input<float>("A_log", nv, [&](size_t) { return b.uniform(-4, 1); }).p;
        dt = b.input<float>("dt_bias", nv, [&](size_t) { return b.uniform(-2, 2); }).p;
    }
    emu::tensor_of<float> &out(emu::bench &b, const char *name) const {
        return b.inout<float>(name, (size_t)p.M * gate_stride, [](size_t) { return UNTOUCHED; });
    }
};
static emu::tensor_of<float> &run_parent(emu::bench &b, const data &d, uint32_t grid_y) {
    auto &o = d.out(b, "parent");
    b.run("parent", { (d.p.N + 3) / 4, grid_y }, 256, 0, { o }, [&] {
        dense_gemm_ba_gates_prefill(d.A, d.B, d.A_log, d.dt, o.p, d.p.M, d.p.N, d.p.K, d.K_stride, d.gate_stride, d.nv, d.p.vpg);
    });
    return o;
}
static emu::tensor_of<float> &run_tc(emu::bench &b, const data &d, const width &w) {
    auto &o = d.out(b, "tc");
    emu::options opt;
    opt.smem_align = 1024;
    opt.check_proxy = d.p.M == 1; /* slow */
    b.run("tc", { (d.p.M + w.rows - 1) / w.rows }, w.split * GDN_BA_TC_BLOCK, w.split * w.smem, opt, { o },
          [&] { w.kernel(d.A, d.B, d.A_log, d.dt, o.p, d.p.M, d.p.N, d.p.K, d.K_stride, d.gate_stride, d.nv, d.p.vpg); });
    return o;
}

/* ---- references ---- */
/* The contract's order, one lane after another. */
static float walk(const gdn_bf16 *a, const gdn_bf16 *b, uint32_t K) {
    float lane[64];
    for (uint32_t l = 0; l < 64; l++) {
        lane[l] = 0;
        for (uint32_t kv = l; kv < K / 8; kv += 64)
            for (uint32_t e = 0; e < 8; e++) {
                const float product = gdn_to_f32(a[kv * 8 + e]) * gdn_to_f32(b[kv * 8 + e]);
                lane[l] = lane[l] + product;
            }
    }
    for (uint32_t d = 16; d; d /= 2)
        for (uint32_t l = 0; l < d; l++) {
            lane[l] += lane[l + d];
            lane[32 + l] += lane[32 + l + d];
        }
    return lane[0] + lane[32];
}
/* beta or gate of column n, its place in the row, from a dot product in f64. */
static double want(const data &d, double r, uint32_t n, uint32_t *place) {
    const uint32_t vpg = d.p.vpg, w = n % (2 * vpg), first = n / (2 * vpg) * vpg, head = first + w % vpg;
    *place = w < vpg ? d.nv + head : head;
    if (w < vpg) return 1 / (1 + std::exp(-r));
    const double x = r + d.dt[head], A = d.A_log[head];
    return std::exp(-std::exp(A > 20 ? 20 : A) * std::log1p(std::exp(x > 20 ? 20 : x)));
}
static bool gaps_untouched(const data &d, const float *out) {
    for (size_t m = 0; m < d.p.M; m++)
        for (uint32_t i = d.p.N; i < d.gate_stride; i++)
            if (out[m * d.gate_stride + i] != UNTOUCHED) return false;
    return true;
}

/* ---- tests ---- */
static void bytes(emu::bench &b, const problem &p) {
    const data d(b, p);
    auto &parent = run_parent(b, d, p.M);
    auto &twin = d.out(b, "twin");
    b.run("twin", { p.M }, 256, 0, { twin }, [&] {
        dense_gemm_ba_gates_prefill_hopper(d.A, d.B, d.A_log, d.dt, twin.p, p.M, p.N, p.K, d.K_stride, d.gate_stride, d.nv, p.vpg);
    });
    b.same_bytes(parent, twin);
    b.expect(gaps_untouched(d, twin.p) && gaps_untouched(d, parent.p), "nothing between the rows is written");

    auto &few = run_parent(b, d, p.M > 3 ? 3 : 1); /* a grid of fewer rows loops */
    b.same_bytes(parent, few);

    unsigned off = 0, control = 0;
    for (uint32_t m = 0; m < p.M; m++)
        for (uint32_t n = 0; n < p.N; n++) {
            const float r = walk(d.A + (size_t)m * d.K_stride, d.B + (size_t)n * p.K, p.K), next = std::nextafter(r, 9e9f);
            uint32_t at;
            (void)want(d, r, n, &at);
            const bool beta = at >= d.nv;
            const uint32_t h = beta ? at - d.nv : at;
            const float got = parent.p[(size_t)m * d.gate_stride + at];
            off += got != (beta ? gdn_beta_fast(r) : gdn_gate_fast(r, d.A_log[h], d.dt[h]));
            control += got != (beta ? gdn_beta_fast(next) : gdn_gate_fast(next, d.A_log[h], d.dt[h]));
        }
    b.expect(off == 0, "the bytes of the contract's order of additions");
    b.expect(control > 0 || p.K < 512, "control: one ulp more in the dot product is noticed"); /* a short sum is too small beside 1/2 */

    auto &gate = b.output<float>("gate", d.nv), &beta = b.output<float>("beta", d.nv);
    const gdn_bf16 *const last = d.A + (size_t)(p.M - 1) * d.K_stride;
    b.run("gemv", { (p.N + 3) / 4 }, 256, 0, { gate, beta },
          [&] { dense_gemv_ba_gates(last, d.B, d.A_log, d.dt, gate.p, beta.p, p.N, p.K, d.nv, p.vpg); });
    const float *const row = parent.p + (size_t)(p.M - 1) * d.gate_stride;
    b.expect(!memcmp(gate.p, row, d.nv * 4) && !memcmp(beta.p, row + d.nv, d.nv * 4), "gemv: the parent's bytes");
}

/* Errors of gate and beta against f64: [0] gate, [1] beta. */
struct error_of {
    double rms[2], worst[2];
};
static error_of measure(const data &d, const float *out) {
    double sum[2] = { 0, 0 }, square[2] = { 0, 0 };
    error_of e = { { 0, 0 }, { 0, 0 } };
    for (uint32_t m = 0; m < d.p.M; m++)
        for (uint32_t n = 0; n < d.p.N; n++) {
            double r = 0;
            for (uint32_t k = 0; k < d.p.K; k++)
                r += (double)gdn_to_f32(d.A[(size_t)m * d.K_stride + k]) * (double)gdn_to_f32(d.B[(size_t)n * d.p.K + k]);
            uint32_t at;
            const double y = want(d, r, n, &at), off = std::fabs(out[(size_t)m * d.gate_stride + at] - y);
            const bool beta = at >= d.nv;
            sum[beta] += off * off;
            square[beta] += y * y;
            if (!(off <= e.worst[beta])) e.worst[beta] = off;
        }
    for (int i = 0; i < 2; i++) e.rms[i] = std::sqrt(sum[i] / square[i]);
    return e;
}
static void tensor(emu::bench &b, const problem &p, const width &w) {
    const data d(b, p);
    auto &tc = run_tc(b, d, w);
    b.expect(gaps_untouched(d, tc.p), "nothing between the rows is written");
    auto &parent = run_parent(b, d, p.M);
    const error_of e = measure(d, tc.p), f = measure(d, parent.p);
    for (int i = 0; i < 2; i++) {
        b.expect(e.rms[i] <= f.rms[i] * 1.02 + 2e-8,
                 i ? "beta: relative RMS not above the parent's" : "gate: relative RMS not above the parent's");
        b.expect(e.worst[i] <= f.worst[i] * 1.02 + 6e-8,
                 i ? "beta: worst element not above the parent's" : "gate: worst element not above the parent's");
        b.expect(e.rms[i] < 1e-6 && f.rms[i] < 1e-6, "both small");
    }
    /* control: one element of A off by one ulp of bf16 */
    d.A[(size_t)(p.M - 1) * d.K_stride + p.K - 1].bits ^= 1;
    const error_of g = measure(d, tc.p);
    b.expect(g.worst[0] > 4 * f.worst[0] && g.worst[1] > 4 * f.worst[1], "control: one product off by an ulp of bf16 is noticed");
}

/* Column map, whole, by planted dot products: row n of B picks element n of A. */
static void columns(emu::bench &b, uint32_t N, uint32_t vpg) {
    const uint32_t K = (N + 63) / 64 * 64;
    data d(b, { 1, N, K, vpg, 0 });
    for (uint32_t k = 0; k < K; k++) d.A[k] = gdn_to_bf16((float)k / 64 - 0.75f);
    for (size_t i = 0; i < (size_t)N * K; i++) d.B[i] = gdn_to_bf16(i / K == i % K ? 1.0f : 0.0f);
    auto &o = run_parent(b, d, 1);
    unsigned off = 0;
    for (uint32_t n = 0; n < N; n++) {
        uint32_t at;
        const double y = want(d, gdn_to_f32(d.A[n]), n, &at);
        off += !(std::fabs(o.p[at] - y) < 1e-6);
    }
    b.expect(off == 0, "every column in its place");
}

/* inf and overflow on the way must not make a NaN. */
static void extremes(emu::bench &b) {
    data d(b, { 3, 8, 64, 2, 0 });
    for (uint32_t k = 0; k < 64; k++) {
        d.A[k] = gdn_to_bf16(k == 0 ? -200.0f : 0.0f);
        d.A[64 + k] = gdn_to_bf16(k == 0 ? 200.0f : 0.0f);
        d.A[128 + k] = gdn_to_bf16(k == 0 ? 3e38f : 0.0f);
    }
    for (uint32_t i = 0; i < 8 * 64; i++) d.B[i] = gdn_to_bf16(i % 64 == 0 ? 1.0f : 0.0f);
    for (uint32_t h = 0; h < 4; h++) {
        d.A_log[h] = h < 2 ? 100.0f : -8.0f;
        d.dt[h] = 0;
    }
    auto &o = run_parent(b, d, 3);
    auto &t = run_tc(b, d, w32);
    for (const float *out : { o.p, t.p }) {
        bool finite = true;
        for (uint32_t i = 0; i < 24; i++) finite = finite && out[i] >= 0 && out[i] <= 1;
        b.expect(finite, "finite");
        b.expect(out[0] == 1 && out[4] == 0, "B86: r = -200, A_log = 100: gate 1, beta 0");
        b.expect(out[8] == 0 && out[12] == 1 && out[16] == 0 && out[20] == 1, "r = 200: gate 0 at A_log = 100, beta 1");
        b.expect(std::fabs(out[8 + 2] - 0.9933133) < 1e-6, "B77: A_log = -8: the clamped decay");
    }
}

/* Rows: one block's under the thread sanitizer, where the blocks of `tc 32` and `tc 64` have to do. */
static uint32_t block_of(uint32_t small, uint32_t full) {
#ifdef __SANITIZE_THREAD__
    (void)small, (void)full;
    return 20;
#else
    return emu::small_or(small, full);
#endif
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    const uint32_t full = emu::small_or(1032u, 5120u);
    c.test("bytes, 1 x 96 x 5120", [&](emu::bench &b) { bytes(b, { 1, 96, full, 3, 0 }); });
    c.test("bytes, 17 x 96 x 1032, padded", [](emu::bench &b) { bytes(b, { 17, 96, 1032, 3, 8 }); });
    c.test("bytes, 25 x 96 x 512, vpg 1", [](emu::bench &b) { bytes(b, { 25, 96, 512, 1, 16 }); });
    c.test("bytes, 17 x 94 x 1032, vpg = nv", [](emu::bench &b) { bytes(b, { 17, 94, 1032, 47, 8 }); });
    c.test("bytes, 25 x 2 x 520", [](emu::bench &b) { bytes(b, { 25, 2, 520, 1, 0 }); });
    c.test("bytes, 3 x 8 x 8", [](emu::bench &b) { bytes(b, { 3, 8, 8, 2, 0 }); });
    c.test("bytes, 2 x 132 x 1536", [](emu::bench &b) { bytes(b, { 2, 132, 1536, 2, 0 }); });
    c.test("columns, vpg 3", [](emu::bench &b) { columns(b, 96, 3); });
    c.test("B76: columns, vpg 2", [](emu::bench &b) { columns(b, 16, 2); });
    c.test("columns, vpg = nv", [](emu::bench &b) { columns(b, 14, 7); });
    c.test("extremes", extremes);
    c.test("tc 96: 131 x 96 x 448, padded", [](emu::bench &b) {
        tensor(b, { block_of(67, 131), 96, emu::small_or(192u, 448u), 3, 8 }, w96);
    });
    c.test("tc 96: 40 x 94 x 1024", [](emu::bench &b) { tensor(b, { block_of(40, 40), 94, 1024, 47, 0 }, w96); });
    c.test("tc 96: 5 x 96 x 192", [](emu::bench &b) { tensor(b, { 5, 96, 192, 3, 0 }, w96); });
    c.test("tc 96, four stages: 130 x 96 x 1280", [](emu::bench &b) {
        tensor(b, { block_of(66, 130), 96, emu::small_or(320u, 1280u), 3, 0 }, w96d);
    });
    c.test("tc 32: 129 x 12 x 192", [](emu::bench &b) { tensor(b, { 129, 12, 192, 3, 16 }, w32); });
    c.test("tc 32: 1 x 32 x 64, a part without work", [](emu::bench &b) { tensor(b, { 1, 32, 64, 2, 0 }, w32); });
    c.test("tc 64: 200 x 64 x 640", [](emu::bench &b) {
        tensor(b, { emu::small_or(72u, 200u), 64, emu::small_or(192u, 640u), 2, 8 }, w64);
    });
    c.test("tc 128: 67 x 128 x 320", [](emu::bench &b) { tensor(b, { block_of(67, 67), 128, emu::small_or(192u, 320u), 2, 0 }, w128); });
    c.test("tc 128: 64 x 98 x 256", [](emu::bench &b) { tensor(b, { block_of(64, 64), 98, 256, 7, 0 }, w128); });
    if (!emu::sanitized()) c.test("tc 96: 24 x 96 x 5120", [](emu::bench &b) { tensor(b, { 24, 96, 5120, 3, 0 }, w96); });
    return c.done();
}
