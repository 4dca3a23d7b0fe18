/* gdn_fast_prepare.cuh - what a chunk of the fast prefill needs of its own tokens alone. Two warpgroups have a unit, a (chunk, key head):
 * K K^T with L and its inverse, and Q K^T with P. The value heads of the key head go through two buffers each: T where K was, two heads at
 * a time, P where Q was, one after another. Units of the first chunks are blocks of a kernel of their own (prepare); the others are taken
 * by ticket in the kernel of the serial pass (prepare_rest), by blocks that have no pass.
 *
 * e^(gc_i - gc_l) for a row block and the columns in front of it is a product of two factors at most 1, with the last column of these
 * between them: no overflow, and an underflow only where the value itself has one. Inside a diagonal block it is taken by itself. */
#pragma once
#include "gdn_fast_inverse.cuh"

namespace gdn_fast {
enum {
    PREPARE_THREADS = 256,
    FACTORS = 3 * 64, /* a head: row blocks 1..3, [48 columns][16 rows] */
    PREPARE_L = 2 * TILE,
    PREPARE_D = PREPARE_L + PAIR * L_BYTES,
    PREPARE_LOGS = PREPARE_D + PAIR * D_FLOATS * 4,
    PREPARE_FACTORS = PREPARE_LOGS + 2 * MAX_RATIO * CHUNK * 4,
    PREPARE_UNITS = PREPARE_FACTORS + MAX_RATIO * FACTORS * 4, /* two, used in turn: the tokens need the registers */
    PREPARE_TAIL = PREPARE_UNITS + 80,
    PREPARE_SMEM = PREPARE_TAIL + CHUNK * 2,
    BAR_BOTH = 0, /* named barriers of a pair, from prepare_place.bars on: of both warpgroups, of the first, of the second */
    BAR_L = 1,
    BAR_P = 2,
};
static_assert(PREPARE_SMEM == 67792, "the launcher's number");

struct prepare_args {
    const gdn_bf16 *query, *key;
    const float *gate, *beta;
    scratch to;
    uint32_t seq_len, num_chunks, nk, nv, qk_stride, gb_stride;
    const int32_t *cu;
    bool is_varlen;
    uint32_t lead;  /* chunks of each sequence that are prepared before the pass; the others are rest */
    uint32_t heads; /* value heads of a block in front of the pass: all of a key head, or fewer where there is room */
};
struct prepare_unit {
    uint64_t token, qk_token; /* of the chunk's first row */
    uint32_t rows, key_head, chunk_row;
    uint32_t none;       /* no work is left */
    uint32_t first, all; /* of its value heads; how many the key head has */
};
static_assert(2 * sizeof(prepare_unit) == 80, "PREPARE_UNITS");
/* One pair of warpgroups, seen by one thread. */
struct prepare_place {
    uint32_t thread, warp, lane; /* in the warpgroup */
    uint32_t both;               /* thread in the pair */
    uint32_t ratio, row;         /* value heads of the unit; this thread's first row of a product, the other is 8 further */
    uint32_t bars;
    unsigned char *smem;
    float *logs, *betas; /* [ratio][CHUNK]: gc in base 2, beta */
    float *factors;      /* [ratio][FACTORS] */
};
GDN_DEVICE uint32_t value_head(uint32_t key_head, uint32_t i, uint32_t nk, uint32_t ratio) {
    return GDN_IS_TILED ? key_head + i * nk : key_head * ratio + i;
}

/* ---- tokens in ---- */
/* Rows of K (group 0) or Q as f16 tile; log decays and betas beside it, summed along the chunk. */
GDN_DEVICE void load_tokens(const prepare_args &o, const prepare_place &at, uint32_t group, const prepare_unit &u) {
    const uint32_t row0 = at.thread / 16, unit = at.thread % 16, head = u.key_head, rows = u.rows;
    const gdn_bf16 *const from = (group ? o.query : o.key) + (u.qk_token + row0) * o.qk_stride + head * DIM + unit * 8;
    uint4 x[8];
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        x[i] = uint4 { 0, 0, 0, 0 };
        const uint32_t t = token_of(row0 + 8 * i, rows), step = i < 7 ? 8 * i : t - row0; /* the same, but for row 63 */
        if (t < rows) x[i] = gdn_ld16(from + (int64_t)(int32_t)step * o.qk_stride);
    }
    GDN_NO_UNROLL
    for (uint32_t i = at.both; i < at.ratio * CHUNK; i += PREPARE_THREADS) {
        const uint32_t t = token_of(i % CHUNK, rows);
        float log = 0.0f, beta = 0.0f;
        if (t < rows) {
            const uint64_t e = (u.token + t) * o.gb_stride + value_head(head, u.first + i / CHUNK, o.nk, u.all);
            log = gdn_log_decay(o.gate[e]) * 1.44269504f;
            beta = o.beta[e];
        }
        at.logs[i] = log;
        at.betas[i] = beta;
    }
    gdn_bar_sync(at.bars + BAR_BOTH, PREPARE_THREADS);
    if (group == 1 && at.thread < at.ratio) { /* in order: a tree of sums costs accuracy */
        float sum = 0;
        float4 *const p = reinterpret_cast<float4 *>(at.logs + at.thread * CHUNK);
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK / 4; i++) {
            float4 v = p[i];
            v.x += sum, v.y += v.x, v.z += v.y, v.w += v.z;
            sum = v.w;
            p[i] = v;
        }
    }
    unsigned char *const to = at.smem + group * TILE + unit / 8 * PANEL + place(row0, unit % 8 * 8);
    GDN_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t w[4] = { x[i].x, x[i].y, x[i].z, x[i].w };
        uint32_t h[4];
        GDN_UNROLL
        for (uint32_t e = 0; e < 4; e++) h[e] = gdn_pack_f16(gdn_bf16_lo(w[e]), gdn_bf16_hi(w[e]));
        gdn_st16(to + i * 1024, uint4 { h[0], h[1], h[2], h[3] });
    }
}
GDN_DEVICE void make_factors(const prepare_place &at) {
    GDN_NO_UNROLL
    for (uint32_t i = at.both; i < at.ratio * FACTORS; i += PREPARE_THREADS) {
        const uint32_t first = (1 + i % FACTORS / 64) * 16, e = i % 64; /* the row block's first row */
        const float *const gc = at.logs + i / FACTORS * CHUNK;
        if (e >= 48)
            at.factors[i] = gdn_exp2_fast(gc[first + e - 48] - gc[first - 1]);
        else if (e < first)
            at.factors[i] = gdn_exp2_fast(gc[first - 1] - gc[e]);
    }
}
/* a = K K^T (group 0) or Q K^T, 64 x 64. */
template <class F> GDN_DEVICE void gram(float (&a)[32], const unsigned char *K, const unsigned char *A, F meanwhile) {
    const gdn_tile_k rows = gdn_make_tile_k(A), columns = gdn_make_tile_k(K);
    gdn_wgmma_fence();
    GDN_UNROLL
    for (uint32_t j = 0; j < 8; j++) {
        const uint32_t at = j % 4 * 32 + j / 4 * PANEL;
        gdn_wgmma_f16(a, gdn_move(rows, at), gdn_move(columns, at), j > 0);
    }
    gdn_wgmma_commit();
    meanwhile();
    gdn_wgmma_wait<0>();
    gdn_pin(a);
}

/* ---- P and the scalars: warpgroup 1 ---- */
GDN_DEVICE void put_scalars(const prepare_place &at, const float *gc, const float *beta, float scale, float *to) {
    const float last = gc[CHUNK - 1];
    if (at.thread < CHUNK) {
        const float x = gc[at.thread], b = beta[at.thread], e = gdn_exp2_fast(x);
        to += spot(at.thread);
        to[AT_BETA] = b;
        to[AT_BETA_DECAY] = b * e;
        to[AT_REST] = gdn_exp2_fast(last - x);
        to[AT_OUT] = e * scale;
    } else if (at.thread < CHUNK + 4) {
        to[AT_ALL + at.thread - CHUNK] = gdn_exp2_fast(last);
    } else if (at.thread >= 96 && at.thread < 96 + CHUNK / 8) {
        const uint32_t word = 4 * (at.thread - 96);
        gdn_st16(to + AT_TAIL + word, gdn_ld16(at.smem + PREPARE_TAIL + 4 * word));
    }
}
/* What a thread multiplies elements of its two rows by, left of the diagonal block: row factors, times the column's. */
struct row_factors {
    float r0, r1;
    const float *columns;
};
GDN_DEVICE row_factors factors_of(const prepare_place &at, uint32_t head) {
    if (at.warp == 0) return row_factors { 0, 0, nullptr };
    const float *const f = at.factors + head * FACTORS + (at.warp - 1) * 64;
    return row_factors { f[48 + at.lane / 4], f[48 + at.lane / 4 + 8], f + 2 * (at.lane % 4) };
}
GDN_DEVICE void put_p(const prepare_place &at, const float (&a)[32], uint32_t head, unsigned char *panel) {
    const uint32_t t = at.lane % 4, i0 = at.row, i1 = at.row + 8;
    const float *const gc = at.logs + head * CHUNK;
    const float g0 = gc[i0], g1 = gc[i1];
    const row_factors f = factors_of(at, head);
    GDN_UNROLL
    for (uint32_t m = 0; m < 4; m++) {
        if (m > at.warp && head >= 2) break; /* the buffer's zeros are there */
        GDN_UNROLL
        for (uint32_t j = 2 * m; j < 2 * m + 2; j++) {
            const uint32_t l = 8 * j + 2 * t;
            uint32_t p0 = 0, p1 = 0;
            if (m < at.warp) {
                const float2 c = get_pair(f.columns + 8 * j);
                p0 = gdn_pack_f16(a[4 * j] * f.r0 * c.x, a[4 * j + 1] * f.r0 * c.y);
                p1 = gdn_pack_f16(a[4 * j + 2] * f.r1 * c.x, a[4 * j + 3] * f.r1 * c.y);
            } else if (m == at.warp) { /* above the diagonal the exponent has no bound */
                const float2 g = get_pair(gc + l);
                const float e00 = l <= i0 ? gdn_exp2_fast(g0 - g.x) : 0.0f, e01 = l + 1 <= i0 ? gdn_exp2_fast(g0 - g.y) : 0.0f,
                            e10 = l <= i1 ? gdn_exp2_fast(g1 - g.x) : 0.0f, e11 = l + 1 <= i1 ? gdn_exp2_fast(g1 - g.y) : 0.0f;
                p0 = gdn_pack_f16(a[4 * j] * e00, a[4 * j + 1] * e01);
                p1 = gdn_pack_f16(a[4 * j + 2] * e10, a[4 * j + 3] * e11);
            }
            unsigned char *const to = panel + place(i0, l);
            put_pair(to, p0);
            put_pair(to + 1024, p1); /* 8 rows further */
        }
    }
}
GDN_DEVICE uint64_t value_row(const prepare_args &o, const prepare_unit &kept, uint32_t i) {
    return (uint64_t)kept.chunk_row * o.nv + value_head(kept.key_head, kept.first + i, o.nk, kept.all);
}
GDN_DEVICE void make_p(const prepare_args &o, const prepare_place &at, const prepare_unit &kept, float (&a)[32], float scale) {
    GDN_UNROLL
    for (uint32_t i = 0; i < 32; i++) a[i] *= scale;
    GDN_NO_UNROLL
    for (uint32_t h = 0; h < at.ratio; h++) {
        const float *const gc = at.logs + h * CHUNK;
        const uint64_t to = value_row(o, kept, h);
        unsigned char *const panel = at.smem + TILE + h % 2 * PANEL;
        put_scalars(at, gc, at.betas + h * CHUNK, scale, o.to.scalars + to * SCALARS);
        if (h != 1) { /* Q, or the P of two heads before, has been sent */
            if (at.thread == 0) {
                if (h == 0)
                    gdn_bulk_wait_read<0>();
                else
                    gdn_bulk_wait_read<1>();
            }
            gdn_bar_sync(at.bars + BAR_P, 128);
        }
        put_p(at, a, h, panel);
        gdn_fence_async();
        gdn_bar_sync(at.bars + BAR_P, 128);
        if (at.thread == 0) {
            gdn_bulk_store(o.to.p + to * PANEL, panel, PANEL);
            gdn_bulk_commit();
        }
    }
}

/* ---- L and T: warpgroup 0 ---- */
GDN_DEVICE void put_l(const prepare_place &at, unsigned char *L, float *diagonal, const float (&a)[32], uint32_t head) {
    const uint32_t g = at.lane / 4, t = at.lane % 4, i0 = at.row, i1 = at.row + 8;
    const float *const gc = at.logs + head * CHUNK;
    const float g0 = gc[i0], g1 = gc[i1], b0 = at.betas[head * CHUNK + i0], b1 = at.betas[head * CHUNK + i1];
    const row_factors f = factors_of(at, head);
    const float r0 = f.r0 * b0, r1 = f.r1 * b1;
    GDN_UNROLL
    for (uint32_t m = 0; m < 4; m++) {
        if (m > at.warp) break;
        GDN_UNROLL
        for (uint32_t j = 2 * m; j < 2 * m + 2; j++) {
            const uint32_t l = 8 * j + 2 * t;
            if (m < at.warp) {
                const float2 c = get_pair(f.columns + 8 * j);
                put_pair(L + i0 * L_ROW + l * 2, gdn_pack_f16(a[4 * j] * r0 * c.x, a[4 * j + 1] * r0 * c.y));
                put_pair(L + i1 * L_ROW + l * 2, gdn_pack_f16(a[4 * j + 2] * r1 * c.x, a[4 * j + 3] * r1 * c.y));
            } else { /* by columns; what is not below the diagonal is never looked at */
                const float2 gl = get_pair(gc + l);
                float *const d = diagonal + (at.warp * 16 + 8 * (j - 2 * m) + 2 * t) * D_ROW + g;
                d[0] = a[4 * j] * (gdn_exp2_fast(fminf(g0 - gl.x, 0.0f)) * b0);
                d[D_ROW] = a[4 * j + 1] * (gdn_exp2_fast(fminf(g0 - gl.y, 0.0f)) * b0);
                d[8] = a[4 * j + 2] * (gdn_exp2_fast(fminf(g1 - gl.x, 0.0f)) * b1);
                d[D_ROW + 8] = a[4 * j + 3] * (gdn_exp2_fast(fminf(g1 - gl.y, 0.0f)) * b1);
            }
        }
    }
}
/* Row 63 of K K^T, for put_scalars, by the four lanes that have it. */
GDN_DEVICE void keep_tail(const prepare_place &at, const float (&a)[32]) {
    const uint32_t t = at.lane % 4;
    if (at.row + 8 != CHUNK - 1) return;
    GDN_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t m[4];
        GDN_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t j = 4 * half + i;
            m[i] = gdn_pack_f16(a[4 * j + 2], j == 7 && t == 3 ? 0.0f : a[4 * j + 3]);
        }
        gdn_st16(at.smem + PREPARE_TAIL + (tail_at(4 * half, t) - AT_TAIL) * 4, uint4 { m[0], m[1], m[2], m[3] });
    }
}
GDN_DEVICE void make_t(const prepare_args &o, const prepare_place &at, const prepare_unit &kept, const float (&a)[32]) {
    const inverse_smem s = { at.smem + PREPARE_L, reinterpret_cast<float *>(at.smem + PREPARE_D), at.smem };
    GDN_NO_UNROLL
    for (uint32_t h = 0; h < at.ratio; h += PAIR) {
        const uint32_t heads = at.ratio - h < PAIR ? 1 : PAIR, lane = gdn_anew(at.lane);
        prepare_place here = at;
        here.lane = lane;
        here.row = at.warp * 16 + lane / 4;
        GDN_NO_UNROLL
        for (uint32_t i = 0; i < heads; i++) put_l(here, s.L + i * L_BYTES, s.diagonal + i * D_FLOATS, a, h + i);
        if (at.thread == 0) gdn_bulk_wait_read<0>(); /* K, or the panels of the two heads before, has been sent */
        gdn_bar_sync(at.bars + BAR_L, 128);
        if (h == 0) zero_upper(s.panel, at.thread);
        invert_diagonal(s, heads, at.warp, lane);
        gdn_bar_sync(at.bars + BAR_L, 128);
        merge_16(s, heads, at.warp, lane);
        gdn_bar_sync(at.bars + BAR_L, 128);
        merge_32(s, heads, at.warp, lane);
        gdn_fence_async();
        gdn_bar_sync(at.bars + BAR_L, 128);
        if (at.thread == 0) {
            GDN_NO_UNROLL
            for (uint32_t i = 0; i < heads; i++) {
                const uint64_t to = value_row(o, kept, gdn_anew(h + i));
                gdn_bulk_store(o.to.t + to * PANEL, s.panel + i * PANEL, PANEL);
            }
            gdn_bulk_commit();
        }
    }
}

/* One unit; `kept` is its copy in shared memory. SIGNAL: the flag is raised when all is written, by each warpgroup. */
template <bool SIGNAL>
GDN_DEVICE void prepare_one(const prepare_args &o, const prepare_place &at, uint32_t group, const prepare_unit &u, const prepare_unit &kept,
                            float scale) {
    load_tokens(o, at, group, u);
    gdn_fence_async();
    gdn_bar_sync(at.bars + BAR_BOTH, PREPARE_THREADS);
    if (at.thread == 0 && kept.first == 0) {
        const uint64_t to = ((uint64_t)kept.chunk_row * o.nk + kept.key_head) * TILE;
        gdn_bulk_store((group ? o.to.q : o.to.k) + to, at.smem + group * TILE, TILE);
        gdn_bulk_commit();
    }
    float a[32];
    gram(a, at.smem, at.smem + group * TILE, [&] { make_factors(at); });
    if (group == 0) keep_tail(at, a);
    gdn_bar_sync(at.bars + BAR_BOTH, PREPARE_THREADS); /* the factors and the tail are there, K has been read */
    if (group == 1)
        make_p(o, at, kept, a, scale);
    else
        make_t(o, at, kept, a);
    if (at.thread != 0) return;
    if (SIGNAL) {
        gdn_bulk_wait<0>();
        gdn_fence_async_global();
        gdn_add_release(o.to.words + READY + (uint64_t)kept.chunk_row * o.nk + kept.key_head, 1);
    } else {
        gdn_bulk_wait_read<0>();
    }
}
/* bars: the first of three named barriers. */
GDN_DEVICE prepare_place place_pair(const prepare_args &o, unsigned char *smem, uint32_t both, uint32_t warp, uint32_t bars) {
    prepare_place at;
    at.both = both;
    at.thread = both % 128;
    at.warp = warp % 4;
    at.lane = gdn_lane();
    at.row = at.warp * 16 + at.lane / 4;
    at.ratio = o.nv / o.nk;
    at.bars = bars;
    at.smem = smem;
    at.logs = reinterpret_cast<float *>(smem + PREPARE_LOGS);
    at.betas = at.logs + MAX_RATIO * CHUNK;
    at.factors = reinterpret_cast<float *>(smem + PREPARE_FACTORS);
    return at;
}
GDN_DEVICE prepare_unit unit_of(const gdn_sequence &seq, uint32_t chunk, uint32_t key_head, uint32_t all) {
    const uint64_t first = (uint64_t)chunk * CHUNK;
    return prepare_unit {
        seq.token + first, seq.qk_token + first, gdn_chunk_rows(seq, chunk), key_head, seq.chunk_row + chunk - seq.begin, 0, 0, all
    };
}

/* A block: the unit of (key head, chunk, sequence), or `heads` of its value heads. All blocks clear the words together. */
GDN_DEVICE void prepare(const prepare_args &o, const gdn_rule_ext &ext, uint32_t words) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, smem, 1024);
    const uint32_t own = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x, blocks = gridDim.x * gridDim.y * gridDim.z;
    for (uint32_t i = own * PREPARE_THREADS + threadIdx.x; i < words; i += blocks * PREPARE_THREADS) o.to.words[i] = 0;
    if (gdn_is_padding(ext, blockIdx.z)) return;
    const gdn_sequence seq = gdn_find_sequence(ext, blockIdx.z, o.seq_len, o.num_chunks, o.cu, o.is_varlen);
    const uint32_t chunk = seq.begin + blockIdx.y, warp = gdn_warp();
    if (chunk >= seq.end) return;
    const uint32_t parts = gridDim.x / o.nk, key_head = blockIdx.x / parts;
    prepare_unit u = unit_of(seq, chunk, key_head, o.nv / o.nk);
    u.first = (blockIdx.x - key_head * parts) * o.heads;
    prepare_unit *const kept = reinterpret_cast<prepare_unit *>(smem + PREPARE_UNITS);
    if (threadIdx.x == 0) *kept = u;
    prepare_place at = place_pair(o, smem, threadIdx.x, warp, 1);
    at.ratio = min(o.heads, u.all - u.first);
    prepare_one<false>(o, at, warp / 4, u, *kept, gdn_output_scale(DIM, ext.scale));
}
} // namespace gdn_fast
