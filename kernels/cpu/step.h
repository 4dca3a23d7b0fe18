/* step.h - decode, verify, write-on-accept verify and fold: the work of one value head of one sequence.
 *
 * A step is what decode.c, verify.c and fold.c hand to the code compiled per instruction set (isa/decode_k.c, isa/decode_v.c):
 * the rows of one (sequence, value head) as f32, where the state comes from, and where the state after each row goes.
 *
 *     src        row j (K-major) or column j (V-major) of the state is at src + j*src_pitch: the head's dimension, or 0
 *                for a fresh sequence, whose src is one row of zeros
 *     after[t]   the state after row t, dense; NULL: not kept. May be src itself (in place)
 *
 * rows() fills vn and out from q, k, v, g, b; fold() writes after[0] from src, k, vn, g. In place or not, and whatever is
 * kept, the bytes are the same. */
#ifndef GDN_STEP_H
#define GDN_STEP_H

#include "rule_addr.h"

enum { GDN__STEP_DIM = 128 }; /* the larger of the two head sizes */

typedef struct gdn__step {
    const float *src;
    ptrdiff_t src_pitch;
    float *after[GDN_MAX_ROWS];
    const float *next; /* the state that this thread wants after this one, or NULL: only fetched, never used */
    uint32_t rows, dim;
    float scale;
    float g[GDN_MAX_ROWS], b[GDN_MAX_ROWS];                    /* g is linear and clamped                            */
    float lead[GDN_MAX_ROWS], mix[GDN_MAX_ROWS][GDN_MAX_ROWS]; /* K-major, t >= 1: c_t = lead[t]*hk_t + sum_s mix[t][s]*vn_s */
    _Alignas(64) float q[GDN_MAX_ROWS][GDN__STEP_DIM];
    _Alignas(64) float k[GDN_MAX_ROWS][GDN__STEP_DIM];
    _Alignas(64) float v[GDN_MAX_ROWS][GDN__STEP_DIM];
    _Alignas(64) float vn[GDN_MAX_ROWS][GDN__STEP_DIM];
    _Alignas(64) float out[GDN_MAX_ROWS][GDN__STEP_DIM];
} gdn__step;

typedef struct gdn__step_table {
    void (*rows)(gdn__step *u);
    void (*fold)(gdn__step *u);
} gdn__step_table;
extern const gdn__step_table gdn__step_k_base, gdn__step_k_avx2, gdn__step_k_avx512;
extern const gdn__step_table gdn__step_v_base, gdn__step_v_avx2, gdn__step_v_avx512;

/* ---- decode_step.c ---- */
/* The pair for this launch's layout and instruction set. */
const gdn__step_table *gdn__step_pick(const gdn_cpu_rule *c);
/* src: the head's state, or zeros when fresh (state is then not looked at). */
void gdn__step_source(const gdn_cpu_rule *c, gdn__step *u, const float *state, bool fresh);
/* q, k, v, g, b, lead, mix of head h from `rows` rows starting at `row`. */
void gdn__step_load(const gdn_cpu_rule *c, gdn__step *u, uint64_t row, uint32_t rows, uint32_t h);
/* u->out to the output rows in the activation type (nearest even); zero: zeros there. */
void gdn__step_store(const gdn_cpu_rule *c, const gdn__step *u, uint64_t row, uint32_t h);
void gdn__step_zero(const gdn_cpu_rule *c, uint64_t row, uint32_t rows, uint32_t h);

/* ---- decode.c ---- */
/* The units [*from, *to) of this thread, batch*nv in all; unit i is head i % nv of sequence i / nv. */
void gdn__step_share(const gdn_cpu_rule *c, uint64_t *from, uint64_t *to);
/* The state that unit i will read, or NULL (padding, fresh, or i == to). */
const float *gdn__step_peek(const gdn_cpu_rule *c, uint64_t i, uint64_t to);
/* A unit of decode or verify; the states between its rows go to hi when `keep`, the last one too by sequence. */
void gdn__step_run(const gdn_cpu_rule *c, uint64_t i, uint64_t row, uint32_t rows, bool keep, const float *next);

/* ---- bf16_state.c ---- */
/* The rows in u from and to bf16 heads: read from in (fresh: zeros), after row t to hi(t) (may be NULL), the last to out. */
void gdn__step_rows_bf16(const gdn_cpu_rule *c, gdn__step *u, const float *in, bool fresh, float *const *after);

/* The state after row t of a verify, head 0, or NULL when there is no place for it. */
static inline float *gdn__step_hi(const gdn_cpu_rule *c, uint32_t b, uint32_t t) {
    if (!c->hi) return NULL;
    const uint64_t id = gdn__rule_id(c, b);
    if (c->addr == GDN_STATE_TABLE) return (float *)(uintptr_t)((const uint64_t *)c->hi)[(uint64_t)t * c->slab_entries + id];
    return gdn__rule_further(c, c->hi, (id * c->hi_capacity + t) * gdn__rule_seq_size(c));
}

/* Whether a launch is worth waking threads for: below some eight heads of 128 x 128 that costs more than it gives. */
static inline bool gdn__step_threads(const gdn_cpu_rule *c, uint32_t rows) {
    return c->batch * rows * gdn__rule_seq_size(c) >= (uint64_t)8 * GDN__STEP_DIM * GDN__STEP_DIM;
}

#endif
