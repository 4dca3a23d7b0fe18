/* plan_common.h - what the targets' planners and launchers share: operation table, shapes with their defaults filled in,
 * argument checks, lever snapshot, and the pure decisions. Nothing here knows a device. */
#ifndef GDN_PLAN_COMMON_H
#define GDN_PLAN_COMMON_H

#include "gdn_op_conv.h"
#include "gdn_op_gates.h"
#include "gdn_op_norm.h"
#include "gdn_op_rule.h"
#include "gdn_op_state.h"
#include "gdn_op_step.h"
#include "gdn_op_w4a4.h"
#include "gdn_plugin.h"
#include <stdbool.h>

enum { GDN__MAX_PTR = 18, GDN__MAX_U32 = 4 };

/* ---- the operations ---- */
typedef struct gdn__arg {
    const char *name;
    uint32_t need; /* GDN_REQ or GDN_OPT */
} gdn__arg;

typedef struct gdn__op {
    uint32_t op, shape_size, flags; /* flags: GDN_PLAN_* bits that the operation takes */
    uint32_t n_ptr, n_u32;
    const gdn__arg *ptr, *u32;
} gdn__op;

const gdn__op *gdn__op_find(uint32_t op); /* NULL when there is none */
const char *gdn__op_name(uint32_t op);    /* "prefill"; "operation" when there is none */

/* ---- shapes ---- */
typedef union gdn__shape {
    gdn_shape base;
    gdn_rule_shape rule;
    gdn_flag_shape flag;
    gdn_conv_shape conv;
    gdn_gates_shape gates;
    gdn_ba_shape ba;
    gdn_norm_shape norm;
    gdn_state_shape state;
    gdn_w4a4_shape w4a4;
    gdn_step_shape step;
} gdn__shape;

/* Copies a caller's shape (of any minor), fills the defaults and checks every field. GDN_E_ARG and GDN_E_ABI name the field;
 * what a target may refuse (dims, state type, rows) is not looked at here. */
gdn_status gdn__shape_read(const gdn_shape *in, gdn__shape *out, gdn_text *err);
/* No pointer of the plan's maxima would stand for more bytes than an address reaches: nothing is computed of them that overflows. */
gdn_status gdn__shape_reach(const gdn__shape *s, gdn_text *err);
gdn_status gdn__shape_rule(gdn_rule_shape *s, gdn_text *err);
gdn_status gdn__shape_conv(gdn_conv_shape *s, gdn_text *err);
gdn_status gdn__shape_gates(gdn_gates_shape *s, gdn_text *err);
gdn_status gdn__shape_ba(gdn_ba_shape *s, gdn_text *err);
gdn_status gdn__shape_norm(gdn_norm_shape *s, gdn_text *err);
gdn_status gdn__shape_state(gdn_state_shape *s, gdn_text *err);
gdn_status gdn__shape_w4a4(gdn_w4a4_shape *s, gdn_text *err);
gdn_status gdn__shape_step(gdn_step_shape *s, gdn_text *err);

/* The output scale of a plan that names none: what rsqrtf gives on an H200 for 64 and 128 (its last bit is not 1/sqrt's), so that all
 * targets have a GPU's bytes. */
float gdn__own_scale(uint32_t k_dim);

/* Operations without activations do not look at act_type. */
static inline bool gdn__has_activations(uint32_t op) {
    return op != GDN_OP_STATE_COPY && op != GDN_OP_STATE_ZERO && op != GDN_OP_FLAG_CLEAR && op != GDN_OP_FOLD;
}

/* Verifies that write no state and leave a stash. */
static inline bool gdn__defers(uint32_t op) {
    return op == GDN_OP_VERIFY_WOA || op == GDN_OP_ROUND;
}

/* What outlives a launch is found by the sequence's number. */
static inline bool gdn__by_sequence(const gdn_shape *s) {
    return (s->flags & GDN_VERIFY_BY_SEQUENCE) != 0;
}

static inline bool gdn__bf16_state(const gdn_rule_shape *s) {
    return s->state_type == GDN_BF16;
}

/* ---- text and small checks: each failing one writes `<op>: <what>` and returns the status ---- */
gdn_status gdn__fail(gdn_text *err, gdn_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
gdn_status gdn__fail_refused(gdn_text *err, uint32_t op, const gdn_route *r); /* its guard, and the lever that was not set */
gdn_status gdn__check_stride(gdn_text *err, const char *op, const char *field, uint32_t *stride, uint64_t row);
gdn_status gdn__check_type(gdn_text *err, const char *op, const char *field, uint32_t type);
gdn_status gdn__check_enum(gdn_text *err, const char *op, const char *field, uint32_t value, uint32_t lo, uint32_t hi);
gdn_status gdn__check_nonzero(gdn_text *err, const char *op, const char *field, uint64_t value);

/* A bad value in memory, in words; GDN_E_CHECKED. */
struct gdn_check_report;
gdn_status gdn__fail_checked(gdn_text *err, uint32_t op, const struct gdn_check_report *r);

/* ---- levers, read once a context ---- */
typedef struct gdn__levers {
    bool launch_early, prefill_tc, no_prefill_tc, prefill_fast, prefill_wn, no_mma8, ba_hopper, ba_tc, woa, mx_ps;
    uint32_t mx_nt;                                                                    /* 1 or 4 */
    uint32_t mx_nt_source, mx_ps_source;                                               /* GDN_FROM_* */
    const char *mx_nt_where, *mx_ps_where;                                             /* host-owned */
    uint32_t cpu_isa;                                                                  /* most that may be used: 0 base, 1 avx2, 2 avx512 */
    uint32_t woa_source, ba_source, ba_tc_source, tc_source, fast_source, wn_source;   /* GDN_FROM_* */
    uint32_t no_tc_source, pipe_source, vtile_source;                                  /* GDN_FROM_* */
    const char *pipe, *vtile;                                                          /* exact strings; NULL is unset; host-owned */
    const char *woa_where, *ba_where, *ba_tc_where, *tc_where, *fast_where, *wn_where; /* host-owned */
    const char *no_tc_where, *pipe_where, *vtile_where;                                /* host-owned */
} gdn__levers;
void gdn__levers_read(const gdn_host *host, gdn__levers *out);

/* ---- pure decisions ---- */
enum { GDN__SPINE_VFUSED, GDN__SPINE_VTILE, GDN__SPINE_PIPE };
/* The scalar prefill spine from the two exact-string levers; NULL is unset. */
uint32_t gdn__scalar_spine(const char *pipe, const char *vtile);

#define GDN__GUARD_ENUM(ID, text) ID,
enum { GDN_BA_GUARD_MAP(GDN__GUARD_ENUM) GDN_BA_TWIN };
enum { GDN_WOA_GUARD_MAP(GDN__GUARD_ENUM) GDN_WOA_TAKEN };
enum { GDN_W4A4_GUARD_MAP(GDN__GUARD_ENUM) GDN_W4A4_TAKEN };
enum { GDN_STEP_GUARD_MAP(GDN__GUARD_ENUM) GDN_STEP_TAKEN };
/* Guards of the rule operations on targets whose kernels have fixed sizes. */
#define GDN__RULE_GUARD_MAP(X)                                                              \
    X(GDN__RULE_DIMS, "k_dim and v_dim are not 64/64 or 128/128")                           \
    X(GDN__RULE_STATE_TYPE, "state is not f32")                                             \
    X(GDN__RULE_ROWS_ZERO, "rows is 0")                                                     \
    X(GDN__RULE_ROWS_MANY, "rows is above 16")                                              \
    X(GDN__RULE_BF16_FLAG, "state is not f32, and bf16 takes the plan flag GDN_BF16_STATE") \
    X(GDN__RULE_BF16_DIMS, "k_dim and v_dim are not 128/128 (bf16 state)")                  \
    X(GDN__RULE_BF16_ROWS, "rows is above 4 (bf16 state)")
enum { GDN__RULE_GUARD_MAP(GDN__GUARD_ENUM) GDN__RULE_TAKEN };
/* Guards of the tensor-core spine (prefill). The last one depends on a launch's pointer: gdn__tc_pick does not know it. */
#define GDN__TC_GUARD_MAP(X)                                                        \
    X(GDN__TC_NOT_REQUESTED, "not requested")                                       \
    X(GDN__TC_KERNEL_ABSENT, "kernel absent from this image (kernels/hopper only)") \
    X(GDN__TC_DIMS, "k_dim, v_dim or chunk is not 128/128/64")                      \
    X(GDN__TC_STRIDE, "qk_stride is not a multiple of 8 (16-byte K loads)")         \
    X(GDN__TC_BASE, "key is not 16-byte aligned (16-byte K loads)")
enum { GDN__TC_GUARD_MAP(GDN__GUARD_ENUM) GDN__TC_TAKEN };

/* Guards of the tensor-core route of the b/a projection. */
#define GDN__BA_TC_GUARD_MAP(X)                                                \
    X(GDN__BA_TC_NOT_REQUESTED, "not requested")                               \
    X(GDN__BA_TC_KERNEL_ABSENT, "kernel absent from this image (sm_90a only)") \
    X(GDN__BA_TC_N_BIG, "N is above 128")                                      \
    X(GDN__BA_TC_K_TILE, "K is not a multiple of 64 (the K tile)")             \
    X(GDN__BA_TC_FEW_ROWS, "too few rows: the other kernels are done earlier")
enum { GDN__BA_TC_GUARD_MAP(GDN__GUARD_ENUM) GDN__BA_TC_TAKEN };

/* Guards of the fast prefill, the first of the prefill routes. The last one depends on a launch's pointers, likewise. */
#define GDN__FAST_GUARD_MAP(X)                                                        \
    X(GDN__FAST_NOT_REQUESTED, "not requested")                                       \
    X(GDN__FAST_KERNEL_ABSENT, "kernel absent from this image (kernels/hopper only)") \
    X(GDN__FAST_DIMS, "k_dim or v_dim is not 128")                                    \
    X(GDN__FAST_RATIO, "nv / nk is above 8")                                          \
    X(GDN__FAST_STRIDE, "a stride of query, key or value is not a multiple of 8")     \
    X(GDN__FAST_LONG, "more than 65535 chunks in a launch")                           \
    X(GDN__FAST_BASE, "query, key, value or output is not 16-byte aligned")
enum { GDN__FAST_GUARD_MAP(GDN__GUARD_ENUM) GDN__FAST_TAKEN };

/* Every guard in one row, for the counters: the families one after another. */
enum {
    GDN__G_BA = 0,
    GDN__G_WOA = GDN__G_BA + GDN_BA_TWIN,
    GDN__G_W4A4 = GDN__G_WOA + GDN_WOA_TAKEN,
    GDN__G_RULE = GDN__G_W4A4 + GDN_W4A4_TAKEN,
    GDN__G_TC = GDN__G_RULE + GDN__RULE_TAKEN,
    GDN__G_BA_TC = GDN__G_TC + GDN__TC_TAKEN,
    GDN__G_FAST = GDN__G_BA_TC + GDN__BA_TC_TAKEN,
    GDN__G_STEP = GDN__G_FAST + GDN__FAST_TAKEN,
    GDN__GUARDS = GDN__G_STEP + GDN_STEP_TAKEN
};
const char *gdn__guard_text(uint32_t guard, uint32_t *op); /* of that row, and the operation it belongs to */

const char *gdn__ba_tc_guard_text(uint32_t guard);
const char *gdn__ba_guard_text(uint32_t guard); /* NULL for GDN_BA_TWIN, likewise below */
const char *gdn__woa_guard_text(uint32_t guard);
const char *gdn__w4a4_guard_text(uint32_t guard);
const char *gdn__rule_guard_text(uint32_t guard);
const char *gdn__tc_guard_text(uint32_t guard);
const char *gdn__fast_guard_text(uint32_t guard);
const char *gdn__dstep_guard_text(uint32_t guard);

uint32_t gdn__ba_min_tokens(uint32_t sm_count); /* 2*max(sm,1), saturating */
uint32_t gdn__ba_pick(bool requested, bool present, uint32_t m, uint32_t n, uint32_t k, uint32_t k_stride, uint32_t sm_count);
uint32_t gdn__ba_tc_min_rows(uint32_t sm_count);
uint32_t gdn__ba_tc_pick(bool requested, bool present, uint32_t m, uint32_t n, uint32_t k, uint32_t sm_count);
uint32_t gdn__woa_pick(bool requested, bool present, const gdn_rule_shape *s, uint32_t rows, uint32_t batch);
uint32_t gdn__w4a4_pick(uint32_t m, uint32_t n, uint32_t k);
uint32_t gdn__rule_pick(const gdn_rule_shape *s, uint32_t rows); /* rows is looked at for verify only */
uint32_t gdn__tc_pick(bool requested, bool present, uint32_t k_dim, uint32_t v_dim, uint32_t chunk, uint32_t qk_stride);
uint32_t gdn__fast_pick(bool requested, bool present, const gdn_rule_shape *s);
uint32_t gdn__dstep_pick(const gdn_step_shape *s, uint32_t batch);

/* ---- a launch's arguments, checked ---- */
typedef struct gdn__call {
    const gdn__op *op;
    uint64_t ptr[GDN__MAX_PTR];
    uint32_t u32[GDN__MAX_U32];
    uint32_t n_u32;       /* how many of them were given */
    const char *bad_name; /* first pointer that is NULL or misaligned, ... */
    const char *bad_what; /* ... and which of the two */
} gdn__call;

/* Copies the arrays (missing trailing entries are NULL or 0, unknown ones must be), without looking at pointers yet. */
gdn_status gdn__call_read(const gdn__op *op, const gdn_launch_args *args, gdn__call *out, gdn_text *err);
/* All pointers marked GDN_REQ are set; without rows (no sequence has a token) those of the rows may be NULL. */
gdn_status gdn__call_required(const gdn__call *c, bool has_rows, gdn_text *err);
/* What the launch writes lies apart from everything else that it is given, but for what may be in place (gdn_ops.h). */
gdn_status gdn__call_apart(const gdn__shape *s, const gdn__call *c, uint64_t workspace, gdn_text *err);
/* What the plan has no use for must not be given: a request would be ignored. */
gdn_status gdn__call_unused(const gdn__shape *s, const gdn__call *c, gdn_text *err);
/* Pointers that only some shapes of the rule operations need. */
gdn_status gdn__rule_needed(const gdn_rule_shape *s, bool has_cu, bool has_slots, bool has_ckpt, gdn_text *err);
/* The same for what a plan by sequence needs. */
gdn_status gdn__call_by_sequence(const gdn__shape *s, const gdn__call *c, gdn_text *err);
/* Pointers that only some shapes of the decode step need. */
gdn_status gdn__dstep_needed(const gdn_step_shape *s, const gdn__call *c, gdn_text *err);
/* The pointer, noting a misalignment; gdn__call_bound reports the first one. */
void *gdn__call_ptr(gdn__call *c, uint32_t index, uint32_t align);
gdn_status gdn__call_bound(const gdn__call *c, gdn_text *err);
/* No work: done before any pointer is looked at. */
bool gdn__call_is_empty(const gdn__shape *s, const gdn__call *c);
/* Every count within the plan's maxima. */
gdn_status gdn__call_counts(const gdn__shape *s, const gdn__call *c, gdn_text *err);
/* The same for a question (explain, route); n_u32 0 asks for the maxima. */
gdn_status gdn__asked_counts(const gdn__shape *s, uint32_t n_u32, const uint32_t *u32, gdn_text *err);
gdn_status gdn__call_max(const gdn__call *c, uint32_t u32_index, uint64_t max, const char *max_name, gdn_text *err);

#endif
