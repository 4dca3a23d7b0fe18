/* rule_case.h - one call of a rule operation: built from a short description, run through the API, judged in f64.
 *
 * rc_make() lays out every buffer between guards: input rows outside the sequences, stride paddings and unused gaps are
 * NaN, all slots of the pool hold random values, outputs are poisoned. rc_check() then
 *   1. works out from the contract what must be written (rc_expect_of), in f64 from the very bytes the kernel gets,
 *   2. launches on a poisoned workspace, and compares outputs, states, intermediates and checkpoints block by block,
 *   3. demands that every other byte (other slots, stride padding, rows of no sequence) is as it was,
 *   4. puts the states back, launches again on the dirty workspace and demands the same bytes, and looks at all canaries.
 * The states stay as after the call, so that a further decode can be judged with rc_then_decode(). */
#ifndef GDN_TEST_RULE_CASE_H
#define GDN_TEST_RULE_CASE_H

#include "guard.h"
#include "numeric.h"
#include "target.h"

/* Zero fields take the default in the comment. */
typedef struct rc_spec {
    uint32_t op;          /* GDN_OP_PREFILL, _DECODE, _VERIFY or _VERIFY_WOA                             */
    uint32_t act;         /* GDN_F32 on the cpu target, GDN_BF16 on the others                            */
    uint32_t nk, nv, dim; /* no default                                                                  */
    uint32_t batch;       /* 1                                                                           */
    const uint32_t *len;  /* tokens or rows of each sequence: a packed batch; NULL: uniform, rows each   */
    uint32_t rows;        /* uniform length; verify: also max_rows (default: the longest)                */
    uint32_t offsets;     /* with len: GDN_OFFSETS_I32                                                   */
    uint32_t row0, tail;  /* packed: rows before the first and after the last sequence                   */
    uint32_t addr;        /* GDN_STATE_CONTIGUOUS                                                        */
    uint32_t gate_form;   /* GDN_GATE_LINEAR                                                             */
    uint32_t head_map, layout, flags;
    uint32_t qk_pad, v_pad, gb_pad; /* elements between rows                                                      */
    bool packed_row;                /* q, k, v are views of one row [Q|K|V]                                        */
    uint64_t slot_pad;              /* elements between slots                                                      */
    const int32_t *slots;           /* input slots, negative: padding; NULL: scattered over the pool               */
    const int32_t *out_slots;       /* NULL: in place                                                              */
    uint32_t num_slots;             /* batch + 3                                                                   */
    bool other_pool;                /* states are written to a second pool                                         */
    const uint8_t *fresh;
    uint32_t ckpt_every, hi_capacity, slab_entries;
    bool hi;           /* verify: keep intermediate states                                            */
    double a_lo, a_hi; /* range of the decay: 0.80 .. 0.999                                           */
    double b_lo, b_hi; /* range of beta: 0.05 .. 0.95                                                 */
    double norm;       /* length of q and k rows: 1; 10 with GDN_QK_L2NORM                            */
    float scale;
    bool sparse; /* rows before the first sequence are left alone (virtual), but for the last 64     */
    uint64_t max_workspace, seed;
} rc_spec;

typedef struct rule_case {
    rc_spec s;
    gdn_rule_shape shape;
    uint32_t *start;   /* [batch + 1] first row of each sequence          */
    int32_t *in, *out; /* [batch] logical slots, whatever the addressing  */
    uint32_t buffer_rows, longest, num_slots;
    bool carried;                 /* the states are judged against f64 ones that a GPU's prefill has come to with its own rounding */
    uint64_t state_elems, stride; /* nv*K*V, elements from slot to slot              */
    uint32_t qk_stride, v_stride, gb_stride;
    guard q, k, v, gb, o, pool, pool_out, cu, in_slots, out_slots, in_tab, out_tab, fresh, ckpt, hi, hi_tab, stash, flag, na, ws;
    uint8_t *qp, *kp, *vp; /* row 0 of q, k, v */
    gdn_hplan *plan[GDN_OP_COUNT_ + 8];
} rule_case;

enum { RC_UNTOUCHED = 0, RC_VALUE = 1, RC_ZERO = 2, RC_ANY = 3 };
typedef struct rc_expect {
    double *o;        /* [rows of all sequences][nv][V] */
    uint8_t *row;     /* [buffer_rows] RC_*   */
    double *state;    /* [batch][nv][K][V]    */
    uint8_t *written; /* [batch] 0, 1, RC_ANY: written, not judged */
    double *hi;       /* [batch][cap][nv][K][V] after each row or checkpoint; NULL when there is none */
    uint32_t hi_cap;
    uint32_t *hi_n; /* [batch] */
} rc_expect;

void rc_make(rule_case *c, const rc_spec *s);
void rc_free(rule_case *c);
/* Before the launch. init: states to start from instead of the pool's, [batch][nv][K][V], or NULL. */
rc_expect rc_expect_of(const rule_case *c, const double *init);
void rc_expect_free(rc_expect *e);

/* Sequences first .. first+n-1 as a launch of their own. The plan is made at the first use and kept. */
gdn_status rc_launch_op(rule_case *c, uint32_t op, uint32_t first, uint32_t n);
gdn_status rc_launch(rule_case *c); /* s.op, the whole batch */

/* Compares with e; `before` holds the buffers as they were before the launch. Sets why. */
typedef struct rc_before {
    guard pool, pool_out, hi, ckpt;
} rc_before;
rc_before rc_remember(const rule_case *c);
void rc_put_back(rule_case *c, const rc_before *b); /* states; poisons outputs again */
void rc_forget(rc_before *b);
bool rc_matches(const rule_case *c, const rc_expect *e, const rc_before *b, char *why, uint32_t cap);
bool rc_canaries(const rule_case *c);

/* The whole sequence above; fails the test when something is off. */
void rc_check(rule_case *c);
void rc_check_against(rule_case *c, const rc_expect *e);
/* Each sequence alone gives the bytes it has in the batch: outputs and states. */
void rc_check_alone(rule_case *c);
/* rc_make, rc_check, rc_check_alone when there is more than one sequence, a further decode, rc_free. */
void rc_run(const rc_spec *s);
/* One more token for every sequence, from the states c left; expected from e's f64 states when given. */
void rc_then_decode(const rule_case *c, const rc_expect *e);

/* The state `got` is that after na (>= 1) of sequence b's rows; e was made with kept states (s.hi). */
void rc_assert_after(const rule_case *c, const rc_expect *e, uint32_t b, uint32_t na, const float *got);
/* flag clear, write-on-accept verify (the flag is then 1), fold with these accepted counts. */
void rc_deferred(rule_case *c, const uint32_t *na);

/* Places. state: NULL for padding. elem: index of S[k][v] inside a head's block. */
float *rc_state(const rule_case *c, bool output, uint32_t b);
uint64_t rc_elem(const rule_case *c, uint32_t k, uint32_t v);
bool rc_padding(const rule_case *c, uint32_t b);
float *rc_hi(const rule_case *c, uint32_t b, uint32_t t);
float *rc_gate(const rule_case *c, uint32_t row, uint32_t head);
float *rc_beta(const rule_case *c, uint32_t row, uint32_t head);
uint8_t *rc_out_row(const rule_case *c, uint32_t row);
uint64_t rc_out_row_bytes(const rule_case *c);
uint32_t rc_first_row(const rule_case *c);               /* 0; sparse: the first row that is poisoned and looked at */
void rc_poison_rows(const rule_case *c, const guard *g); /* from that row on */

#endif
