/* emu_wgmma.cpp - m64nNk16 of a warpgroup, warp by warp: each has 16 rows of A and D and reads all of B. Shared operands are read
 * where the schedule does the product, so that a tile refilled too early shows. Sums as in emu_mma.cpp. */
#include "emu_wgmma.hpp"
#include "emu_internal.hpp"
#include "emu_number.hpp"

namespace emu {
struct wgmma_in {
    uint32_t a[4];
    float *d;
    const char *a_base, *b_base;
    uint32_t a_leading, b_leading;
    int16_t regs;
    bool f16, keep, a_shared, a_transposed, b_transposed;
};
static_assert(sizeof(wgmma_in) <= sizeof(lane_in), "a lane brings its part of a product");

/* Element (row, k) of an operand, row along M or N: its place before the swizzle of the address. */
static const char *element(const char *base, uint32_t leading, bool transposed, int row, int k) {
    const int64_t offset = transposed ? (int64_t)(row / 64) * leading + (k / 8) * 1024 + (k % 8) * 128 + (row % 64) * 2
                                      : (int64_t)(row / 8) * 1024 + (row % 8) * 128 + k * 2;
    const auto a = reinterpret_cast<uintptr_t>(base + offset);
    return reinterpret_cast<const char *>(a ^ (a >> 3 & 0x70));
}
/* The 16-byte unit that begins at (row, k): eight elements along k, along the row where transposed. */
static void unit_values(const wgmma_in &p, bool of_a, int row, int k, double *out) {
    const char *at = of_a ? element(p.a_base, p.a_leading, p.a_transposed, row, k) : element(p.b_base, p.b_leading, p.b_transposed, row, k);
    proxy_read(at, 16, "wgmma");
    seen_read(at, 16, "wgmma");
    uint16_t bits[8];
    copy(bits, at, sizeof bits);
    for (int i = 0; i < 8; i++) out[i] = (double)(p.f16 ? widen_f16(bits[i]) : widen_bf16(bits[i]));
}
/* Rows [row0, row0 + n) of 16 elements each, to (k, row). */
static void tile_values(const wgmma_in &p, bool of_a, int row0, int n, double (*out)[256]) {
    const bool transposed = of_a ? p.a_transposed : p.b_transposed;
    for (int k = 0; k < 16; k += transposed ? 1 : 8)
        for (int r = 0; r < n; r += transposed ? 8 : 1) {
            double unit[8];
            unit_values(p, of_a, row0 + r, k, transposed ? &out[k][r] : unit);
            for (int i = 0; i < 8 && !transposed; i++) out[k + i][r] = unit[i];
        }
}

static void product_perform(const product &x, unsigned warp) {
    const wgmma_in &p = *reinterpret_cast<const wgmma_in *>(x.head);
    const int n = 2 * p.regs, row0 = (int)(warp % 4) * 16;
    static double a[16][256], b[16][256], d[256]; /* (k, row) */
    if (self) proxy_note();
    if (p.a_shared) tile_values(p, true, row0, 16, a);
    for (int r = 0; r < 16 && !p.a_shared; r++)
        for (int k = 0; k < 16; k++) {
            const int lane = (r % 8) * 4 + (k % 8) / 2, q = (r / 8) + 2 * (k / 8);
            a[k][r] = (double)(k & 1 ? high_half(x.a[q][lane], p.f16) : low_half(x.a[q][lane], p.f16));
        }
    tile_values(p, false, 0, n, b);
    for (int r = 0; r < 16; r++) {
        float *out[4];
        for (int t = 0; t < 4; t++) out[t] = x.d[(r % 8) * 4 + t] + 2 * (r / 8);
        for (int j = 0; j < n; j++) d[j] = p.keep ? (double)out[j % 8 / 2][j / 8 * 4 + (j & 1)] : 0.0;
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < n; j++) d[j] += a[k][r] * b[k][j];
        for (int j = 0; j < n; j++) out[j % 8 / 2][j / 8 * 4 + (j & 1)] = (float)d[j];
    }
}

static warp_state &my_warp() {
    return B.w[me()->warp];
}
static void product_run(product &x, warp_state &w) {
    engine_enter(x.engine);
    product_perform(x, me()->warp);
    engine_leave(&w.finished);
}
static void note(uint64_t step) {
    warp_state &w = my_warp();
    w.history = (w.history ^ step) * 1099511628211ull + 1;
}
static void issue(group &g) {
    warp_state &w = my_warp();
    if (w.products.open == MAX_PRODUCTS) fail("more than %d warpgroup products in flight", (int)MAX_PRODUCTS);
    product &x = w.item[w.products.open++];
    copy(x.head, &g.in[0], sizeof(wgmma_in));
    const wgmma_in &p = *reinterpret_cast<const wgmma_in *>(x.head);
    for (int l = 0; l < WARP; l++) {
        wgmma_in in;
        copy(&in, &g.in[l], sizeof in);
        if (in.b_base != p.b_base || in.b_leading != p.b_leading || in.keep != p.keep || (p.a_shared && in.a_base != p.a_base))
            fail("line %d: the lanes of a warp bring different tiles to a warpgroup product", g.line);
        for (int q = 0; q < 4; q++) x.a[q][l] = in.a[q];
        x.d[l] = in.d;
    }
    x.done = B.opt.at_issue;
    x.engine = engine_start(&w.issued);
    if (x.done) product_run(x, w);
    note((uint64_t)g.line << 16 | (unsigned)p.regs);
}
void wgmma(float *d, int regs, const uint32_t *a, const tile *a_tile, const tile &b, bool f16, bool keep, place at) {
    const unsigned first = me()->warp / 4 * 4;
    if ((first + 4) * WARP > B.n) fail("%s:%d: a warpgroup product by an incomplete warpgroup", at.name(), at.line);
    if (!my_warp().fenced) fail("%s:%d: a warpgroup product before any gdn_wgmma_fence", at.name(), at.line);
    if ((reinterpret_cast<uintptr_t>(b.base) | (a_tile ? reinterpret_cast<uintptr_t>(a_tile->base) : 0)) % 16)
        fail("%s:%d: a tile is not 16-byte aligned", at.name(), at.line);
    wgmma_in in = {};
    for (int q = 0; q < 4 && a; q++) in.a[q] = a[q];
    in.d = d;
    in.b_base = b.base;
    in.b_leading = b.leading;
    in.b_transposed = b.transposed;
    in.regs = (int16_t)regs;
    in.f16 = f16;
    in.keep = keep;
    in.a_shared = a_tile != nullptr;
    if (a_tile) {
        in.a_base = a_tile->base;
        in.a_leading = a_tile->leading;
        in.a_transposed = a_tile->transposed;
    }
    release(&my_warp().issued);
    warp_leave(warp_arrive(0xffffffffu, KIND_WGMMA + f16, at, &in, sizeof in, issue));
}

/* ---- fence, commit, wait: once a warp, by its last lane ---- */
static void finish_fence(group &) {
    my_warp().fenced = true;
}
static void finish_commit(group &g) {
    queue_commit(my_warp().products, "warpgroup products");
    note((uint64_t)g.line << 16 | 0xC000);
}
static void finish_wait(group &g) {
    warp_state &w = my_warp();
    unsigned keep, i;
    copy(&keep, &g.in[0], sizeof keep);
    while (queue_next(w.products, keep, &i))
        if (!w.item[i].done) product_run(w.item[i], w);
    note((uint64_t)g.line << 16 | 0xE000 | keep);
}
void wgmma_fence(place at) {
    warp_leave(warp_arrive(0xffffffffu, KIND_WG_STEP, at, nullptr, 0, finish_fence));
}
void wgmma_commit(place at) {
    warp_leave(warp_arrive(0xffffffffu, KIND_WG_STEP + 1, at, nullptr, 0, finish_commit));
}
void wgmma_wait(unsigned keep, place at) {
    warp_leave(warp_arrive(0xffffffffu, KIND_WG_STEP + 2, at, &keep, sizeof keep, finish_wait));
    acquire(&my_warp().finished);
}
void set_registers(int n, place at) {
    if (n < 24 || n > 256 || n % 8) fail("%s:%d: setmaxnreg %d (a multiple of 8, 24 to 256)", at.name(), at.line, n);
    warp_leave(warp_arrive(0xffffffffu, KIND_WG_STEP + 3, at, nullptr, 0, nullptr));
}

void products_reset() {
    for (unsigned i = 0; i < B.warps; i++) {
        warp_state &w = B.w[i];
        w.products.open = w.products.done = w.products.commits = 0;
        w.history = 0;
        w.fenced = false;
    }
}
void products_exit(fibre &f) {
    const queue &q = B.w[f.warp].products;
    if (q.open != q.done) fail("a warpgroup product still in flight when its thread returns");
}
void products_exit_block() {
    for (unsigned i = 0; i + 1 < B.warps; i++)
        if (i / 4 == (i + 1) / 4 && B.w[i].history != B.w[i + 1].history)
            fail("warps %u and %u of one warpgroup issued different products", i, i + 1);
}
} // namespace emu
