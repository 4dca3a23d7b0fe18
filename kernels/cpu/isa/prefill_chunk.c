/* prefill_chunk.c - the gated delta rule over one sequence, for some value columns of the heads of one key head, by chunks.
 *
 * For a chunk of 32 tokens, gc_i = sum_{j<=i} g_j (g = ln a, clamped) and E_il = exp(gc_i - gc_l):
 *
 *     (I + L) U = diag(beta) (V - diag(exp gc) K S)            L_il = beta_i E_il <k_i, k_l>        l < i
 *     O  = scale (diag(exp gc) Q S + A U)                      A_il = E_il <q_i, k_l>               l <= i
 *     S' = exp(gc_last) S + K^T diag(exp(gc_last - gc_i)) U
 *
 * K S is taken with the state of the moment, so the product of (I + L)^-1 and K is never formed, nor is the inverse: forward
 * substitution. The Gram matrices are made once for all value heads of the key head. Chunks start at the sequence's start, so
 * a sequence cut at a multiple of 32 gives the same bytes. gc is kept as hi + lo floats: after a token of decay zero
 * (g = -69) a single float would leave later differences with an error of 4e-6. */
#include "../prefill.h"
#include "../rule_addr.h"
#include "prefill_pack.h"
#include <math.h>

enum { MAX_DIM = 128 };

typedef struct chunk {
    float K[CHUNK * MAX_DIM], Q[CHUNK * MAX_DIM], KT[MAX_DIM * CHUNK];
    float KK[CHUNK * CHUNK], QK[CHUNK * CHUNK], L[CHUNK * CHUNK], A[CHUNK * CHUNK];
    float U[CHUNK * TILE], UD[CHUNK * TILE];
    float gc_hi[CHUNK], gc_lo[CHUNK], beta[CHUNK], eg[CHUNK], egs[CHUNK], dec[CHUNK];
    float S[GDN__PREFILL_MAX_HEADS * MAX_DIM * MAX_DIM]; /* state tiles, tile_first first */
} chunk;

/* The next block of a chunk with n tokens: MR rows, or MR_LAST where they are enough or no more fit. */
GDN_INLINE bool big_block(long r0, long n) {
    return r0 + MR <= CHUNK && n - r0 > MR_LAST;
}
GDN_INLINE long blocks_end(long n) {
    long r0 = 0;
    while (r0 < n) r0 += big_block(r0, n) ? MR : MR_LAST;
    return r0;
}

static void gram(long d, long n, chunk *w) {
    for (long r0 = 0; r0 < n; r0 += GRAM_ROWS)
        for (long l0 = 0; l0 < r0 + GRAM_ROWS; l0 += GRAM_VECS * VL) {
            const long need = (r0 + GRAM_ROWS - l0 + VL - 1) / VL;
            if (need >= 3 && GRAM_VECS >= 3)
                gram_rows(GRAM_VECS, d, r0, l0, w->K, w->Q, w->KT, w->KK, w->QK);
            else if (need >= 2)
                gram_rows(2, d, r0, l0, w->K, w->Q, w->KT, w->KK, w->QK);
            else
                gram_rows(1, d, r0, l0, w->K, w->Q, w->KT, w->KK, w->QK);
        }
}

/* gc, its exponentials and beta of value head h; rows past the last token repeat its gc and have beta 0. */
static void decays(const gdn_cpu_rule *c, uint64_t row, long n, uint32_t h, chunk *w) {
    double gc = 0;
    for (long i = 0; i < CHUNK; i++) {
        w->beta[i] = 0;
        if (i < n) {
            const uint64_t at = gdn__rule_gb_at(c, row + (uint64_t)i, h);
            const float g = c->gate[at];
            gc += c->log_gate ? (double)fmaxf(g, -69.0775528f) : log((double)fmaxf(g, 1e-30f));
            w->beta[i] = c->beta[at];
        }
        w->gc_hi[i] = (float)gc;
        w->gc_lo[i] = (float)(gc - (double)w->gc_hi[i]);
    }
    const vf hi = vset(w->gc_hi[CHUNK - 1]), lo = vset(w->gc_lo[CHUNK - 1]);
    for (long i = 0; i < CHUNK; i += VL) {
        const vf a = *(const vf *)(w->gc_hi + i), b = *(const vf *)(w->gc_lo + i), e = vexp(a + b);
        *(vf *)(w->eg + i) = e;
        *(vf *)(w->egs + i) = e * vset(c->scale);
        *(vf *)(w->dec + i) = vexp((hi - a) + (lo - b));
    }
}

/* L (negated) and A with the scale, rows of n tokens and of the last block; zeros outside the triangles. */
static void triangles(float scale, long n, chunk *w) {
    const long end = blocks_end(n);
    vi lane;
    for (int j = 0; j < VL; j++) lane[j] = j;
    for (long i = 0; i < end; i++)
        for (long l = 0; l < CHUNK; l += VL) {
            vf *L = (vf *)(w->L + i * CHUNK + l), *A = (vf *)(w->A + i * CHUNK + l);
            if (l > i || i >= n) {
                *L = *A = vset(0);
                continue;
            }
            const vf d_hi = vset(w->gc_hi[i]) - *(const vf *)(w->gc_hi + l), d_lo = vset(w->gc_lo[i]) - *(const vf *)(w->gc_lo + l);
            const vf e = vexp(d_hi + d_lo);
            const vi at = lane + (int32_t)l;
            *L = vsel((vi)(at < (int32_t)i), vset(-w->beta[i]) * e * *(const vf *)(w->KK + i * CHUNK + l), vset(0));
            *A = vsel((vi)(at <= (int32_t)i), vset(scale) * e * *(const vf *)(w->QK + i * CHUNK + l), vset(0));
        }
}

GDN_INLINE void tile_steps(long d, bool f32, const solve_args *s, const out_args *o, const float *K, float *S) {
    const long n = s->n;
    for (long r0 = 0; r0 < n;) {
        if (big_block(r0, n)) {
            solve_rows(MR, d, f32, s, r0);
            r0 += MR;
        } else {
            solve_rows(MR_LAST, d, f32, s, r0);
            r0 += MR_LAST;
        }
    }
    for (long r0 = 0; r0 < n;) {
        if (big_block(r0, n)) {
            out_rows(MR, d, f32, o, r0);
            r0 += MR;
        } else {
            out_rows(MR_LAST, d, f32, o, r0);
            r0 += MR_LAST;
        }
    }
    const float decay = s->eg[CHUNK - 1];
    long k0 = 0;
    for (; k0 + MR <= d; k0 += MR) update_rows(MR, d, k0, n, decay, K, s->UD, S);
    for (; k0 < d; k0 += 2) update_rows(2, d, k0, n, decay, K, s->UD, S);
}

static void tile(const gdn_cpu_rule *c, const solve_args *s, const out_args *o, const float *K, float *S) {
    if (c->k_dim == 128 && c->f32)
        tile_steps(128, true, s, o, K, S);
    else if (c->k_dim == 128)
        tile_steps(128, false, s, o, K, S);
    else if (c->f32)
        tile_steps(64, true, s, o, K, S);
    else
        tile_steps(64, false, s, o, K, S);
}

static const void *act_at(const gdn_cpu_rule *c, const void *base, uint64_t at) {
    return (const char *)base + at * (c->f32 ? sizeof(float) : sizeof(uint16_t));
}

static void pack_keys(const gdn_cpu_rule *c, uint64_t at, long n, long next, chunk *w) {
    const long d = (long)c->k_dim;
    if (c->f32) {
        pack_rows(d, true, c->l2norm, c->k, at, c->qk_stride, n, next, w->K);
        pack_rows(d, true, c->l2norm, c->q, at, c->qk_stride, n, next, w->Q);
    } else {
        pack_rows(d, false, c->l2norm, c->k, at, c->qk_stride, n, next, w->K);
        pack_rows(d, false, c->l2norm, c->q, at, c->qk_stride, n, next, w->Q);
    }
    transpose_keys(d, n, w->K, w->KT);
}

/* The part [first, end) of the unit's tiles that lies in head e. */
static void head_chunk(const gdn_cpu_rule *c, const gdn__prefill_unit *u, uint32_t e, uint64_t row, long n, chunk *w) {
    const uint32_t per_head = c->v_dim / TILE, h = gdn__rule_value_head(c, u->key_head, e);
    const uint32_t first = u->tile_first > e * per_head ? u->tile_first : e * per_head;
    const uint32_t end = u->tile_end < (e + 1) * per_head ? u->tile_end : (e + 1) * per_head;
    decays(c, row, n, h, w);
    triangles(c->scale, n, w);
    for (uint32_t i = first; i < end; i++) {
        float *S = w->S + (uint64_t)(i - u->tile_first) * c->k_dim * TILE;
        const uint64_t column = (uint64_t)(i - e * per_head) * TILE;
        const solve_args s = { .K = w->K,
                               .S = S,
                               .L = w->L,
                               .beta = w->beta,
                               .eg = w->eg,
                               .dec = w->dec,
                               .U = w->U,
                               .UD = w->UD,
                               .v = act_at(c, c->v, gdn__rule_v_at(c, row, h) + column),
                               .v_stride = c->v_stride,
                               .n = n };
        const out_args o = { .Q = w->Q,
                             .S = S,
                             .A = w->A,
                             .egs = w->egs,
                             .U = w->U,
                             .o = (void *)(uintptr_t)act_at(c, c->out, gdn__rule_out_at(c, row, h) + column),
                             .o_stride = (uint64_t)c->nv * c->v_dim,
                             .n = n };
        tile(c, &s, &o, w->K, S);
    }
}

static void load_states(const gdn_cpu_rule *c, const gdn__prefill_unit *u, chunk *w) {
    const uint32_t per_head = c->v_dim / TILE;
    for (uint32_t i = u->tile_first; i < u->tile_end; i++) {
        const uint64_t h = gdn__rule_value_head(c, u->key_head, i / per_head);
        const float *head = u->in ? u->in + h * gdn__rule_head_size(c) : NULL;
        pack_state((long)c->k_dim, c->v_major, head, (long)(i % per_head), w->S + (uint64_t)(i - u->tile_first) * c->k_dim * TILE);
    }
}
static void store_states(const gdn_cpu_rule *c, const gdn__prefill_unit *u, const chunk *w, float *to) {
    const uint32_t per_head = c->v_dim / TILE;
    for (uint32_t i = u->tile_first; i < u->tile_end; i++) {
        const uint64_t h = gdn__rule_value_head(c, u->key_head, i / per_head);
        unpack_state((long)c->k_dim, c->v_major, w->S + (uint64_t)(i - u->tile_first) * c->k_dim * TILE, (long)(i % per_head),
                     to + h * gdn__rule_head_size(c));
    }
}

static void run(const gdn_cpu_rule *c, const gdn__prefill_unit *u) {
    _Alignas(64) chunk w;
    const uint32_t per_head = c->v_dim / TILE, head_end = (u->tile_end + per_head - 1) / per_head;
    load_states(c, u, &w);
    for (uint64_t t = 0; t < u->len; t += CHUNK) {
        const uint64_t left = u->len - t, done = t + CHUNK;
        const long n = left < CHUNK ? (long)left : CHUNK, next = left < 2 * CHUNK ? (long)left - n : CHUNK;
        pack_keys(c, gdn__rule_qk_at(c, u->row + t, u->key_head), n, next, &w);
        gram((long)c->k_dim, n, &w);
        for (uint32_t e = u->tile_first / per_head; e < head_end; e++) head_chunk(c, u, e, u->row + t, n, &w);
        if (u->ckpt && done <= u->len && done % c->ckpt_every == 0)
            store_states(c, u, &w, u->ckpt + (done / c->ckpt_every - 1) * gdn__rule_seq_size(c));
    }
    store_states(c, u, &w, u->out);
}

const gdn__prefill_table GDN_ISA_NAME(gdn__prefill_table) = { .tile = TILE, .run = run };
