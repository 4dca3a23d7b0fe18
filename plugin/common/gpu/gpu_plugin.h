/* gpu_plugin.h - inside a GPU target's plugin: context, plan, and the steps of a launch.
 *
 * gpu_modules.c  which modules to compile for which architecture, loading those of every plan, binding entries
 * gpu_builds.c   builds that only some plans need
 * gpu_ctx.c      init, fini, counters              gpu_plan.c    plan, explain, route
 * gpu_decide.c   the pure decision                 gpu_launch.c  check, decide, pack, launch
 * gpu_pack.c     arguments in the kernels' order   gpu_lines.c   the log lines that people grep
 * gpu_rule.c     what the rule operations share    gpu_prefill.c the chunk pipeline
 * gpu_step.c     decode, verify, fold              gpu_w4a4.c    FP4 projections
 * gpu_decode_step.c   the fused decode step        gpu_checked.c GDN_PLAN_CHECKED
 * gpu_fast.c     how the fast prefill is shared out
 *
 * Nothing here is state at file scope; all hangs off the context. The backend is the host's. */
#ifndef GDN_GPU_PLUGIN_H
#define GDN_GPU_PLUGIN_H

#include "gdn_modules.h"
#include "gpu_target.h"
#include "plan_common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { GPU_ARCH_BYTES = 16, GPU_REASON_BYTES = 512, GPU_LOG_BYTES = 3072 };

/* A set of entries, GPU_E_*. */
typedef struct gpu_set {
    uint64_t bits[(GPU_ENTRIES + 63) / 64];
} gpu_set;
static inline bool gpu_has(gpu_set set, uint32_t entry) {
    return entry < GPU_ENTRIES && (set.bits[entry / 64] >> entry % 64 & 1);
}
static inline void gpu_put(gpu_set *set, uint32_t entry) {
    set->bits[entry / 64] |= (uint64_t)1 << entry % 64;
}
static inline void gpu_drop(gpu_set *set, uint32_t entry) {
    set->bits[entry / 64] &= ~((uint64_t)1 << entry % 64);
}

/* One build of a module. What stands beside state is written before it, once; a failure is remembered, not compiled at every plan. */
enum { GPU_UNTRIED, GPU_LOADED, GPU_FAILED };
typedef struct gpu_form {
    _Atomic uint32_t state;
    gdn_status status; /* GPU_FAILED: of it, */
    char *why;         /* and its reason; NULL: no memory was left */
    char *guards;      /* what routes say of its entries, likewise */
    void *handle;      /* GPU_LOADED */
} gpu_form;

typedef struct gpu_build {
    uint32_t module, form;
} gpu_build;
/* A plan in the making. */
enum { GPU_BUILDS = 48 };
typedef struct gpu_making {
    bool asking; /* the first time through: builds are noted, nothing is bound */
    uint32_t n;
    gpu_build build[GPU_BUILDS];
    char why[GPU_REASON_BYTES]; /* of the first entry that could not be had */
} gpu_making;

struct gdn_ctx {
    gdn_host host; /* a copy; what it points to outlives the context */
    gdn_status (*start)(void *user, void *function, const gdn_dims *dims, void *stream, void **params); /* the backend's */
    gdn__levers levers;
    gdn_device device;
    int32_t ordinal;
    pid_t pid;
    char arch[GPU_ARCH_BYTES]; /* of the device, with its suffix: "sm_90a" */
    pthread_mutex_t loading;   /* of builds: who comes second finds them */
    gpu_form form[GPU_MODULES][GPU_FORMS];
    char reason[GPU_REASON_BYTES]; /* of the first module of every plan that failed */
    void *entry[GPU_ENTRIES];      /* function handles of the modules of every plan; NULL = ABSENT, or a plan's own */
    _Atomic uint32_t plans;
    _Atomic uint64_t launched[GPU_ENTRIES];
    _Atomic uint64_t refused[GDN__GUARDS];
};

/* Everything a launch may need, resolved: handle of each candidate entry. */
struct gdn_plan {
    gdn_ctx *ctx;
    const gdn__op *op;
    gdn__shape shape;
    gpu_set present;                             /* entries that exist here */
    void *entry[GPU_ENTRIES], *ext[GPU_ENTRIES]; /* entry NULL: this plan launches the `_ext` form */
    const char *lost[GPU_ENTRIES];               /* of entries that were to be had and did not load: what a route says of them */
    gpu_making *making;                          /* NULL once it is made */
    uint64_t report;                             /* device memory of GDN_PLAN_CHECKED; 0: not checked */
    _Atomic uint32_t said; /* lines of first launches that were written: bit 0 the tensor-core spine's, bit 1 the fast prefill's */
};

/* What is known of a target and device when a route is asked: a context has it all, a dry question assumes the target's device. */
typedef struct gpu_facts {
    const gdn__levers *levers;
    gpu_set present;         /* entries that exist here */
    uint32_t sm_count;       /* 0: cannot say */
    const char *const *lost; /* as a plan's; NULL: nothing was tried */
} gpu_facts;
static inline const char *gpu_lost(const gpu_facts *f, uint32_t entry) {
    return f->lost ? f->lost[entry] : NULL;
}

/* The kernels of a prefill: the two fast ones, or the chunk pipeline. */
typedef struct gpu_prefill {
    uint32_t wu, spine, fwd_o;       /* GPU_E_* */
    uint32_t fast_guard;             /* why not the fast kernels; GDN__FAST_TAKEN: they run */
    uint32_t tc_guard;               /* why not the tensor-core spine; GDN__TC_TAKEN: it runs, or would */
    const char *fast_text, *tc_text; /* of the guards, in words: what a route says */
    uint32_t chunks;                 /* of the longest sequence */
    uint32_t segment;                /* chunks of each sequence in one pass over the workspace */
    uint32_t fast_segment;           /* fast kernels: chunks of a segment, all of which pass side by side; 0: a sequence passes as one */
    bool wn;                         /* the fast kernels are those by W and N */
    const char *wn_text;             /* why they are not, though they were asked for and fast ones run */
} gpu_prefill;

/* Parts of a rule operation's workspace, byte offsets; total 0: none is needed. */
typedef struct gpu_workspace {
    uint64_t in_tab, out_tab, cu, query, key, W, U, S, uc, gc, total;
    uint64_t chunks; /* 64-token chunks that there is scratch for */
    uint64_t fast_k, fast_q, fast_t, fast_p, fast_scalars,
        fast_words;                               /* the fast kernels' scratch, in the same place as W to gc; T or W, P or N */
    uint64_t fast_moved, fast_added, fast_begins; /* and behind it, for sequences that pass in segments */
    uint32_t fast_segment;                        /* chunks of one; 0: none do */
} gpu_workspace;

typedef struct gpu_decision {
    gdn_status status; /* GDN_OK, GDN_REFUSED, GDN_ABSENT */
    uint32_t entry;    /* GPU_E_*; GPU_ENTRIES: nothing runs */
    gdn_dims dims;
    uint32_t guard;    /* place in the counters; GDN__GUARDS: none */
    uint32_t tc_guard; /* BA gates: why not the tensor cores; GDN__BA_TC_TAKEN: they run */
    const char *tc_text, *twin_text;
    gpu_prefill prefill;
    gdn_route route;
} gpu_decision;

const char *gpu_entry_name(uint32_t entry);
const char *gpu_ext_name(uint32_t entry);   /* "<entry>_ext" */
const char *gpu_entry_lost(uint32_t entry); /* "<entry> did not load" */
bool gpu_has_core(uint32_t entry);          /* is its core in builds of their own (GPU_HALF) */
uint32_t gpu_entry_op(uint32_t entry);
uint32_t gpu_entry_module(uint32_t entry);
const char *gpu_module_file(uint32_t module);
bool gpu_module_for(const char *arch, uint32_t module); /* does the target carry it for this architecture */
/* The architecture string of a device: "sm_90a" and "sm_121f" for the targets' own, else plain "sm_<cc>". */
void gpu_arch_of(uint32_t cc_major, uint32_t cc_minor, char out[GPU_ARCH_BYTES]);
gdn_status gpu_job_of(uint32_t module, uint32_t form, const char *arch, gdn_compile_job *out);
uint32_t gpu_module_rank(uint32_t module); /* those that take long to compile come first: 0, 1, ... */
/* What a target compiles for an architecture, every form of every module, in one row. false past the end. */
bool gpu_job_at(const char *arch, uint32_t index, gdn_compile_job *out);

gdn_status gpu_modules_open(gdn_ctx *ctx, gdn_text *err);
void gpu_modules_close(gdn_ctx *ctx);
/* ---- gpu_builds.c ---- */
/* The entry in one form of its module: noted while the plan asks, else bound, *out NULL and lost to the plan if it cannot be had. Only a
 * capture, a fork and no memory are answers. */
gdn_status gpu_form_entry(gdn_plan *p, uint32_t entry, uint32_t form, const char *name, void **out, gdn_text *err);
/* A failed module's text, of which there were `full` bytes, with its file in front, cut at a line's end and marked where it is longer. */
void gpu_reason(char *out, size_t cap, uint32_t module, const char *text, uint64_t full, const char *where);
void gpu_lost_in_advance(const gdn_ctx *ctx, const char *lost[GPU_ENTRIES]); /* modules of every plan: their entries that failed */
/* guard: the route's text for it, which lives as long as the context; NULL: only that it did not load. */
void gpu_lose(gdn_plan *p, uint32_t entry, const char *why, const char *guard);
/* A form whose build is loaded and is the same as `form` in the bits that the entry looks at; `form` if there is none. */
uint32_t gpu_form_at_hand(const gdn_ctx *ctx, uint32_t entry, uint32_t form, uint32_t looked_at);
/* Loads what the plan will bind, and what its model's other plans will, together. */
gdn_status gpu_builds_for(gdn_plan *p, gdn_text *err);
/* Entries that there are, or would be, for a plan of this shape; k->why and lost: why not. Loads nothing. */
gpu_set gpu_present_for(const gdn_ctx *ctx, const gdn__shape *s, gpu_making *k, const char *lost[GPU_ENTRIES]);
gpu_set gpu_present(const gdn_ctx *ctx); /* before anything is known of a shape */

/* u32 may be NULL: the maxima. Pure. */
void gpu_decide(const gpu_facts *facts, const gdn__shape *shape, const uint32_t *u32, gpu_decision *out);
void gpu_take(gpu_decision *d, uint32_t entry, uint32_t gx, uint32_t gy, uint32_t block, uint32_t smem);
void gpu_declined(gpu_decision *d, const char *lever, const char *why); /* one more of route.refused */
void gpu_refuse(gpu_decision *d, const char *why);                      /* what no lever is about: a size that the kernel does not have */

/* ---- rule operations: gpu_rule.c (workspace, tables, normalised copies), gpu_prefill.c ---- */
uint32_t gpu_rule_form(const gdn_rule_shape *s);
/* wn: where the fast kernels by W and N have their scratch; the total is the same. */
void gpu_rule_workspace(const gdn_rule_shape *s, bool wn, gpu_workspace *out);
void gpu_decide_prefill(const gpu_facts *facts, const gdn_rule_shape *s, const uint32_t *u32, gpu_decision *d);
/* Pointers that the fast kernels or the tensor-core spine cannot take: the next route, and a guard. */
void gpu_prefill_base(const gpu_facts *facts, const gdn_rule_shape *s, const gdn__call *c, gpu_decision *d);
uint32_t gpu_scalar_spine(const gdn__levers *lv); /* the entry that the levers name */
gdn_status gpu_bind_ba(gdn_plan *p, gdn_text *err);
gdn_status gpu_bind_rule_op(gdn_plan *p, gdn_text *err); /* GDN_OK for what is no rule operation */
gdn_status gpu_bind_prefill(gdn_plan *p, gdn_text *err);
gdn_status gpu_launch_prefill(const gdn_plan *p, gdn__call *c, const gpu_decision *d, void *stream, gdn_text *err);
/* decode, verify, write-on-accept verify, fold: gpu_step.c */
void gpu_decide_step(const gpu_facts *facts, const gdn_rule_shape *s, const uint32_t *u32, gpu_decision *d);
gdn_status gpu_bind_step(gdn_plan *p, gdn_text *err);
gdn_status gpu_bind_flag_clear(gdn_plan *p, gdn_text *err);
gdn_status gpu_launch_step(const gdn_plan *p, gdn__call *c, const gpu_decision *d, void *stream, gdn_text *err);
/* fold and write-on-accept verify in one launch: gpu_round.c */
void gpu_decide_round(const gpu_facts *facts, const gdn_rule_shape *s, const uint32_t *u32, gpu_decision *d);
gdn_status gpu_bind_round(gdn_plan *p, gdn_text *err);
gdn_status gpu_launch_round(const gdn_plan *p, gdn__call *c, const gpu_decision *d, void *stream, gdn_text *err);
/* ---- FP4 projections: gpu_w4a4.c ---- */
void gpu_decide_w4a4(const gpu_facts *facts, const gdn_w4a4_shape *s, const uint32_t *u32, gpu_decision *d);
gdn_status gpu_bind_w4a4(gdn_plan *p, gdn_text *err);
void gpu_log_w4a4(const gdn_ctx *ctx, const gpu_decision *d, uint32_t m);
/* Dynamic shared memory above 48 KiB has to be asked for, within what the device has. */
gdn_status gpu_allow_smem(const gdn_ctx *ctx, uint32_t entry, void *function, uint32_t bytes, gdn_text *err);

/* The kernel's arguments, in its order. */
typedef struct gpu_args {
    uint64_t slot[40];
    void *param[40];
    uint32_t n;
} gpu_args;
gdn_status gpu_pack(const gdn_plan *p, gdn__call *c, uint32_t entry, gpu_args *out, gdn_text *err);
void gpu_arg_u32(gpu_args *a, uint32_t v);
void gpu_arg_u64(gpu_args *a, uint64_t v);
void gpu_arg_f32(gpu_args *a, float v);
gdn_status gpu_pack_w4a4(const gdn_w4a4_shape *s, gdn__call *c, uint32_t entry, gpu_args *a, gdn_text *err);
/* ---- the fused decode step: gpu_decode_step.c ---- */
void gpu_decide_decode_step(const gpu_facts *facts, const gdn_step_shape *s, const uint32_t *u32, gpu_decision *d);
gdn_status gpu_pack_decode_step(const gdn_plan *p, gdn__call *c, gpu_args *a, gdn_text *err);
void gpu_log_decode_step(const gdn_ctx *ctx, const gpu_decision *d);

/* ---- GDN_PLAN_CHECKED: gpu_checked.c ---- */
gdn_status gpu_bind_checked(gdn_plan *p, gdn_text *err);
void gpu_drop_checked(gdn_plan *p);
/* GDN_E_CHECKED: a value in memory is bad, and err names it; nothing of the operation has been started. */
gdn_status gpu_check_values(const gdn_plan *p, gdn__call *c, void *stream, gdn_text *err);

void gpu_log_plan(const gdn_plan *p, const gpu_decision *d);
void gpu_log_launch(const gdn_plan *p, const gpu_decision *d, const gdn__call *c);

gdn_status gpu_init(const gdn_host *host, int32_t ordinal, gdn_ctx **out, gdn_text *err);
void gpu_fini(gdn_ctx *ctx);
gdn_status gpu_counters(const gdn_ctx *ctx, gdn_counter *out, uint32_t cap, uint32_t *n);
gdn_status gpu_plan(gdn_ctx *ctx, const gdn_shape *shape, void *stream, gdn_plan **out, gdn_text *err);
void gpu_destroy(gdn_plan *plan);
gdn_status gpu_launch(const gdn_plan *plan, const gdn_launch_args *args);
gdn_status gpu_explain(const gdn_plan *plan, uint32_t n_u32, const uint32_t *u32, gdn_route *out);
gdn_status gpu_route_on(const gdn_ctx *ctx, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                        gdn_text *err);
gdn_status gpu_route(const gdn_host *host, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                     gdn_text *err);

#endif
