/* gdn_verify_split.cuh - verify of 32 or 16 value columns of a head by eight threads a column: one sequence fills more multiprocessors than
 * with gdn_verify.cuh, and a thread has 16 elements of the state instead of 128. The same operations in the same order, so the same bytes.
 * Heads of 128, block 8 * COLUMNS.
 *
 * A thread has four k of four neighbouring columns: one access of 16 bytes a line, [K][V] by lines of k, [V][K] by lines of v. Sums of four
 * are made where the state is and change hands through shared memory, four rows at once; one thread a row and column adds those of its. */
#pragma once
#include "gdn_verify.cuh"

/* Blocks of 256 threads on a multiprocessor: sm_121 has room for 1536 threads. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#define GDN_PART_KERNEL(rows) GDN_KERNEL(GDN_PART_WIDEST *GDN_PART_THREADS, 3)
#else
#define GDN_PART_KERNEL(rows) GDN_KERNEL(GDN_PART_WIDEST *GDN_PART_THREADS, (rows) > 4 ? 3 : 4)
#endif

enum { GDN_PART_THREADS = 8 /* a column */, GDN_PART_WIDEST = 32, GDN_PART_WAVE = 4 /* rows */ };

template <uint32_t ROWS> struct __align__(16) gdn_part_smem {
    float q[ROWS][GDN_STEP_DIM], k[ROWS][GDN_STEP_DIM];
    float vn[ROWS][GDN_PART_WIDEST]; /* v, then vn */
    float hk[ROWS][GDN_PART_WIDEST];
    float sums[GDN_PART_WAVE][33 * GDN_PART_WIDEST];
    float g[ROWS], b[ROWS], lead[ROWS], mix[ROWS][ROWS];
    float dots[ROWS][ROWS][4]; /* each quarter's share */
    float *after[ROWS];        /* where the state after a row goes */
#ifdef GDN_QK_L2NORM
    float squares[2][ROWS][4];
#endif
};

GDN_DEVICE float4 gdn_part_get(const float *p, bool wide) {
    if (wide) return gdn_ld16f_stream(p);
    return float4 { gdn_ld4f_stream(p), gdn_ld4f_stream(p + 1), gdn_ld4f_stream(p + 2), gdn_ld4f_stream(p + 3) };
}
GDN_DEVICE void gdn_part_put(float *p, bool wide, float4 x) {
    if (wide)
        gdn_st16f_stream(p, x);
    else
        gdn_st4f_stream(p, x.x), gdn_st4f_stream(p + 1, x.y), gdn_st4f_stream(p + 2, x.z), gdn_st4f_stream(p + 3, x.w);
}

/* Four k from four(), four columns from columns(). */
template <uint32_t COLUMNS> struct gdn_part_state {
    float4 s[4];
#ifndef GDN_STATE_VK
    static GDN_METHOD uint32_t four() { return threadIdx.x / (COLUMNS / 4) * 4; }
    static GDN_METHOD uint32_t columns() { return threadIdx.x % (COLUMNS / 4) * 4; }
    static GDN_METHOD uint64_t place(uint32_t slice) { return four() * GDN_STEP_DIM + slice * COLUMNS + columns(); }
    static GDN_METHOD float sum_of(float a, float b, float c, float d, float4 k) { return gdn_group_sum(float4 { a, b, c, d }, k); }
    GDN_METHOD float4 dot(float4 k) const {
        return float4 { sum_of(s[0].x, s[1].x, s[2].x, s[3].x, k), sum_of(s[0].y, s[1].y, s[2].y, s[3].y, k),
                        sum_of(s[0].z, s[1].z, s[2].z, s[3].z, k), sum_of(s[0].w, s[1].w, s[2].w, s[3].w, k) };
    }
    static GDN_METHOD float4 line(float g, float4 s, float k, float4 vn) {
        return float4 { g * s.x + k * vn.x, g * s.y + k * vn.y, g * s.z + k * vn.z, g * s.w + k * vn.w };
    }
    GDN_METHOD void step(float g, float4 k, float4 vn) {
        s[0] = line(g, s[0], k.x, vn), s[1] = line(g, s[1], k.y, vn), s[2] = line(g, s[2], k.z, vn), s[3] = line(g, s[3], k.w, vn);
    }
    /* [group][column] */
    static GDN_METHOD void keep(float *sums, float4 x) { gdn_st16f(sums + four() / 4 * COLUMNS + columns(), x); }
    static GDN_METHOD uint32_t sum_at(uint32_t group, uint32_t column) { return group * COLUMNS + column; }
#else
    static GDN_METHOD uint32_t four() { return 4 * gdn_lane(); }
    static GDN_METHOD uint32_t columns() { return threadIdx.x / 32 * 4; }
    static GDN_METHOD uint64_t place(uint32_t slice) { return (slice * COLUMNS + columns()) * GDN_STEP_DIM + four(); }
    GDN_METHOD float4 dot(float4 k) const {
        return float4 { gdn_group_sum(s[0], k), gdn_group_sum(s[1], k), gdn_group_sum(s[2], k), gdn_group_sum(s[3], k) };
    }
    GDN_METHOD void step(float g, float4 k, float4 vn) {
        s[0] = gdn_group_step(g, s[0], k, vn.x), s[1] = gdn_group_step(g, s[1], k, vn.y);
        s[2] = gdn_group_step(g, s[2], k, vn.z), s[3] = gdn_group_step(g, s[3], k, vn.w);
    }
    /* [column][group], a group more between columns */
    static GDN_METHOD void keep(float *sums, float4 x) {
        sums += columns() * 33 + gdn_lane();
        sums[0] = x.x, sums[33] = x.y, sums[66] = x.z, sums[99] = x.w;
    }
    static GDN_METHOD uint32_t sum_at(uint32_t group, uint32_t column) { return column * 33 + group; }
#endif
    GDN_METHOD void load(const float *in, uint32_t slice) {
        const float *const p = gdn_opaque(in + place(slice));
        const bool wide = (uint64_t)in % 16 == 0;
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) s[i] = in ? gdn_part_get(p + i * GDN_STEP_DIM, wide) : float4 { 0, 0, 0, 0 };
    }
    GDN_METHOD void store(float *out, uint32_t slice) const {
        float *const p = gdn_opaque(out + place(slice));
        const bool wide = (uint64_t)out % 16 == 0;
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) gdn_part_put(p + i * GDN_STEP_DIM, wide, s[i]);
    }
    /* A column's 32 sums of four, in order. */
    static GDN_METHOD float total(const float *sums, uint32_t column) {
        float sum = 0;
        GDN_UNROLL
        for (uint32_t i = 0; i < 32; i++) sum += sums[sum_at(i, column)];
        return sum;
    }
};

/* Sums over the warp of eight values, each with the bits of gdn_warp_sum_down: lane 4*i has that of value gdn_eight_of(4*i). A step's
 * two halves of the warp take different values. */
GDN_DEVICE float gdn_eight_half(float a, float b, bool second, int d) {
    return (second ? b : a) + __shfl_xor_sync(GDN_FULL_MASK, second ? a : b, d);
}
GDN_DEVICE float gdn_eight_sums(const float (&x)[8]) {
    const uint32_t l = gdn_lane();
    const bool h16 = l & 16, h8 = l & 8, h4 = l & 4;
    const float a = gdn_eight_half(x[0], x[1], h16, 16), b = gdn_eight_half(x[2], x[3], h16, 16);
    const float c = gdn_eight_half(x[4], x[5], h16, 16), d = gdn_eight_half(x[6], x[7], h16, 16);
    float sum = gdn_eight_half(gdn_eight_half(a, b, h8, 8), gdn_eight_half(c, d, h8, 8), h4, 4);
    sum += __shfl_xor_sync(GDN_FULL_MASK, sum, 2);
    return sum + __shfl_xor_sync(GDN_FULL_MASK, sum, 1);
}
GDN_DEVICE uint32_t gdn_eight_of(uint32_t lane) {
    return (lane >> 4 & 1) | (lane >> 2 & 2) | (lane & 4);
}

/* The shares of all pairs of keys: quarter w of the dimensions by warp w, of four. */
template <uint32_t ROWS> GDN_DEVICE void gdn_part_dots(gdn_part_smem<ROWS> &m, uint32_t rows) {
    const uint32_t i = threadIdx.x, which = gdn_eight_of(gdn_lane());
    GDN_NO_UNROLL
    for (uint32_t t = 1; t < rows; t++) {
        GDN_NO_UNROLL
        for (uint32_t s = 0; s < t; s += 8) {
            float x[8];
            GDN_UNROLL
            for (uint32_t j = 0; j < 8; j++) x[j] = s + j < t ? m.k[t][i] * m.k[s + j][i] : 0;
            const float sum = gdn_eight_sums(x);
            if (gdn_lane() % 4 == 0 && s + which < t) m.dots[t][s + which][i / 32] = sum;
        }
    }
}
/* (1,0) (2,0) (2,1) (3,0) (3,1) (3,2) at once; rows that are not there are zero. */
GDN_DEVICE void gdn_part_dots(gdn_part_smem<4> &m, uint32_t) {
    const uint32_t i = threadIdx.x, which = gdn_eight_of(gdn_lane()), t = which < 1 ? 1 : which < 3 ? 2 : 3;
    const float k0 = m.k[0][i], k1 = m.k[1][i], k2 = m.k[2][i], k3 = m.k[3][i];
    const float x[8] = { k1 * k0, k2 * k0, k2 * k1, k3 * k0, k3 * k1, k3 * k2, 0, 0 };
    const float sum = gdn_eight_sums(x);
    if (gdn_lane() % 4 == 0 && which < 6) m.dots[t][which - t * (t - 1) / 2][i / 32] = sum;
}
/* lead and mix by the block's last warp. */
template <uint32_t ROWS> GDN_DEVICE void gdn_part_mix(gdn_part_smem<ROWS> &m, uint32_t rows) {
    GDN_NO_UNROLL
    for (uint32_t pair = gdn_lane(); pair < ROWS * ROWS; pair += 32) {
        const uint32_t t = pair / ROWS, s = pair % ROWS;
        if (s >= t || t >= rows) continue;
        float decay = s + 1 < t ? m.g[s + 1] : 1.0f;
        GDN_NO_UNROLL
        for (uint32_t e = s + 2; e < t; e++) decay *= m.g[e];
        m.mix[t][s] = decay * gdn_step_join<GDN_STEP_DIM>(m.dots[t][s]);
        if (s > 0) continue;
        float lead = m.g[0];
        GDN_NO_UNROLL
        for (uint32_t e = 1; e < t; e++) lead *= m.g[e];
        m.lead[t] = lead;
    }
}
/* vn of column i, all rows: a row's c takes each earlier vn as soon as that is there, still in the order of the rows. Rows that are not
 * there take whatever there is, and are not used. */
template <uint32_t ROWS> GDN_DEVICE void gdn_part_values(gdn_part_smem<ROWS> &m, uint32_t rows, uint32_t i) {
    float c[ROWS]; /* then vn; stored at the end, so that the loads need not wait */
    GDN_UNROLL
    for (uint32_t t = 0; t < ROWS; t++) c[t] = t ? m.lead[t] * m.hk[t][i] : m.hk[t][i];
    GDN_UNROLL
    for (uint32_t s = 0; s < ROWS; s++) {
        if (ROWS > 4 && s >= rows) break;
        c[s] = (m.vn[s][i] - m.g[s] * c[s]) * m.b[s];
        GDN_UNROLL
        for (uint32_t t = s + 1; t < ROWS; t++) c[t] += m.mix[t][s] * c[s];
    }
    GDN_UNROLL
    for (uint32_t t = 0; t < ROWS; t++)
        if (t < rows) m.vn[t][i] = c[t];
}

/* Raw values of the rows. A warp has every second row (every fourth of 256 threads) of q or of k, a lane four neighbours. */
template <uint32_t COLUMNS, uint32_t ROWS> struct gdn_part_rows {
    enum : uint32_t {
        THREADS = GDN_PART_THREADS * COLUMNS,
        STRIDE = THREADS / 64,
        EACH = ROWS / STRIDE,
        VALUES = ROWS * COLUMNS < THREADS ? 1 : ROWS * COLUMNS / THREADS
    };
    uint2 qk[EACH];
    gdn_bf16 v[VALUES];
    float gate, beta;
    static GDN_METHOD uint32_t first() { return threadIdx.x / 64; }
    static GDN_METHOD bool is_key() { return threadIdx.x / 32 % 2; }
    static GDN_METHOD uint2 narrow(const gdn_bf16 *x) {
        return uint2 { x[0].bits | (uint32_t)x[1].bits << 16, x[2].bits | (uint32_t)x[3].bits << 16 };
    }

    GDN_METHOD void fetch(const gdn_step &a, uint64_t row, uint32_t rows, uint32_t head, uint32_t key_head, uint32_t slice) {
        const uint32_t i = threadIdx.x;
        GDN_UNROLL
        for (uint32_t n = 0; n < VALUES; n++) {
            const uint32_t t = (i + n * THREADS) / COLUMNS;
            v[n] = t < rows ? a.v[(row + t) * a.v_stride + head * GDN_STEP_DIM + slice * COLUMNS + i % COLUMNS] : gdn_bf16 { 0 };
        }
        gate = beta = 0;
        if (i < rows) {
            const uint64_t gb = (row + i) * a.gb_stride + head;
            gate = a.gate[gb], beta = a.beta[gb];
        }
        const gdn_bf16 *const from = is_key() ? a.k : a.q;
        const gdn_bf16 *const p = from + (row + first()) * a.qk_stride + key_head * GDN_STEP_DIM + 4 * gdn_lane();
        const uint64_t step = (uint64_t)STRIDE * a.qk_stride;
        const bool wide = ((uint64_t)p % 8 | a.qk_stride % 4) == 0;
        GDN_UNROLL
        for (uint32_t n = 0; n < EACH; n++) qk[n] = uint2 { 0, 0 };
        if (wide) {
            GDN_UNROLL
            for (uint32_t n = 0; n < EACH; n++)
                if (first() + n * STRIDE < rows) qk[n] = gdn_ld8_ro(p + n * step);
            return;
        }
        GDN_UNROLL
        for (uint32_t n = 0; n < EACH; n++)
            if (first() + n * STRIDE < rows) qk[n] = narrow(p + n * step);
    }
    GDN_METHOD void put(gdn_part_smem<ROWS> &m) const {
        const uint32_t i = threadIdx.x;
        float *const to = (is_key() ? m.k[first()] : m.q[first()]) + 4 * gdn_lane();
        GDN_UNROLL
        for (uint32_t n = 0; n < EACH; n++)
            gdn_st16f(to + n * STRIDE * GDN_STEP_DIM,
                      float4 { gdn_bf16_lo(qk[n].x), gdn_bf16_hi(qk[n].x), gdn_bf16_lo(qk[n].y), gdn_bf16_hi(qk[n].y) });
        GDN_UNROLL
        for (uint32_t n = 0; n < VALUES; n++) {
            const uint32_t t = (i + n * THREADS) / COLUMNS;
            if (t < ROWS) m.vn[t][i % COLUMNS] = gdn_to_f32(v[n]);
        }
        if (i < ROWS) m.g[i] = gdn_step_decay(gate), m.b[i] = beta;
    }
#ifdef GDN_QK_L2NORM
    /* After the barrier that follows put; the caller's barrier follows. */
    static GDN_METHOD void normalise(gdn_part_smem<ROWS> &m, uint32_t rows) {
        const uint32_t w = threadIdx.x / 32;
        GDN_NO_UNROLL
        for (uint32_t n = w / 4; n < 2 * rows; n += THREADS / 128) {
            const float x = (n % 2 ? m.k : m.q)[n / 2][w % 4 * 32 + gdn_lane()], sum = gdn_warp_sum_down(x * x);
            if (gdn_lane() == 0) m.squares[n % 2][n / 2][w % 4] = sum;
        }
        gdn_sync_block();
        GDN_NO_UNROLL
        for (uint32_t t = first(); t < rows; t += STRIDE) {
            float *const p = (is_key() ? m.k : m.q)[t] + 4 * gdn_lane();
            const float size = sqrtf(gdn_step_join<GDN_STEP_DIM>(m.squares[is_key()][t]) + 1e-6f);
            const float4 x = gdn_ld16f(p);
            gdn_st16f(p, float4 { gdn_div(x.x, size), gdn_div(x.y, size), gdn_div(x.z, size), gdn_div(x.w, size) });
        }
        gdn_sync_block();
    }
#endif
};

/* Columns slice*COLUMNS and up of rows [row, row + rows), 1 <= rows <= ROWS. in NULL: zeros. after: as gdn_step_rows_in. */
template <uint32_t COLUMNS, uint32_t ROWS, class AFTER>
GDN_DEVICE void gdn_part_verify(gdn_part_smem<ROWS> &m, const gdn_step &a, uint64_t row, uint32_t rows, uint32_t head, uint32_t key_head,
                                uint32_t slice, const float *in, AFTER after) {
    typedef gdn_part_state<COLUMNS> part;
    typedef gdn_part_rows<COLUMNS, ROWS> raw_rows;
    const uint32_t i = threadIdx.x, own = i / COLUMNS, column = i % COLUMNS; /* the row of a wave, and the column, that it adds up */
    part state;
    raw_rows raw;
    raw.fetch(a, row, rows, head, key_head, slice);
    state.load(in, slice);
    if (i < rows) m.after[i] = after(i);
    raw.put(m);
    gdn_sync_block();
#ifdef GDN_QK_L2NORM
    raw_rows::normalise(m, rows);
#endif
    if (COLUMNS == 16 || i < GDN_STEP_DIM) gdn_part_dots(m, rows);
    GDN_NO_UNROLL
    for (uint32_t from = 0; from < rows; from += GDN_PART_WAVE) {
        const uint32_t end = min(rows - from, (uint32_t)GDN_PART_WAVE);
        if (from > 0) gdn_sync_block();
        GDN_NO_UNROLL
        for (uint32_t t = 0; t < end; t++) part::keep(m.sums[t], state.dot(gdn_ld16f(m.k[from + t] + part::four())));
        gdn_sync_block();
        if (own < end) m.hk[from + own][column] = part::total(m.sums[own], column);
        if (from == 0 && i >= raw_rows::THREADS - 32) gdn_part_mix<ROWS>(m, rows);
    }
    gdn_sync_block();
    if (i < COLUMNS) gdn_part_values<ROWS>(m, rows, i);
    gdn_sync_block();
    GDN_NO_UNROLL
    for (uint32_t from = 0; from < rows; from += GDN_PART_WAVE) {
        const uint32_t end = min(rows - from, (uint32_t)GDN_PART_WAVE);
        if (from > 0) gdn_sync_block();
        GDN_NO_UNROLL
        for (uint32_t t = 0; t < end; t++) {
            float *const to = m.after[from + t];
            state.step(m.g[from + t], gdn_ld16f(m.k[from + t] + part::four()), gdn_ld16f(m.vn[from + t] + part::columns()));
            if (to) state.store(to, slice);
            part::keep(m.sums[t], state.dot(gdn_ld16f(m.q[from + t] + part::four())));
        }
        gdn_sync_block();
        if (own < end)
            a.out[(row + from + own) * a.nv * GDN_STEP_DIM + head * GDN_STEP_DIM + slice * COLUMNS + column] =
                gdn_to_bf16(a.scale * part::total(m.sums[own], column));
    }
}

/* As gdn_verify; block 128 or 256, grid (8*nv, batch) or (4*nv, batch). */
template <uint32_t COLUMNS, uint32_t ROWS, class HI>
GDN_DEVICE void gdn_verify_parts(gdn_part_smem<ROWS> &m, const gdn_step &a, const gdn_rule_ext &x, const gdn_verify_ext &e, void *h,
                                 bool is_table, uint32_t rows, HI hi_of) {
    enum : uint32_t { PARTS = GDN_STEP_DIM / COLUMNS };
    const uint32_t head = blockIdx.x / PARTS, slice = blockIdx.x % PARTS;
    uint32_t key_head = 0;
    const gdn_verify_work w = gdn_verify_begin<GDN_STEP_DIM>(a, x, e, h, is_table, head, slice == 0, rows,
                                                             [&] { key_head = gdn_anew(gdn_key_head(head, a.nk, a.nv)); });
    if (w.rows)
        gdn_part_verify<COLUMNS, ROWS>(m, a, w.row, w.rows, head, key_head, slice, w.in,
                                       [&](uint32_t t) { return gdn_verify_after<GDN_STEP_DIM>(w, head, t, hi_of); });
}
template <uint32_t ROWS, class HI>
GDN_DEVICE void gdn_verify_split(const gdn_step &a, const gdn_rule_ext &x, const gdn_verify_ext &e, void *h, bool is_table, uint32_t rows,
                                 HI hi_of) {
    __shared__ gdn_part_smem<ROWS> m;
    if (blockDim.x == GDN_PART_WIDEST * GDN_PART_THREADS)
        gdn_verify_parts<32, ROWS>(m, a, x, e, h, is_table, rows, hi_of);
    else
        gdn_verify_parts<16, ROWS>(m, a, x, e, h, is_table, rows, hi_of);
}
