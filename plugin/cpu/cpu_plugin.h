/* cpu_plugin.h - inside libgdn_cpu.so: context, plan, and the steps of a launch.
 *
 * query.c      identity and table            cpu_ctx.c     init, fini, counters
 * cpu_plan.c   plan, explain, route          cpu_launch.c  launch: check, bind, run, count
 * bind_rule.c, bind_layer.c, bind_step.c   ABI pointers and shape -> the kernels' call structs
 * checked.c    what is validated before anything is written */
#ifndef GDN_CPU_PLUGIN_H
#define GDN_CPU_PLUGIN_H

#include "cpu_kernels.h"
#include "plan_common.h"
#include <stdatomic.h>
#include <sys/types.h>

struct gdn_ctx {
    gdn_host host; /* a copy; what it points to outlives the context */
    gdn__levers levers;
    pid_t pid; /* threads of the parent do not exist in a forked child */
    uint32_t isa;
    _Atomic uint32_t plans;
    _Atomic uint64_t launched[GDN_OP_COUNT_];
    _Atomic uint64_t refused[GDN__GUARDS];
};

struct gdn_plan {
    gdn_ctx *ctx;
    const gdn__op *op;
    gdn__shape shape;
};

/* The decision for one set of counts: the route as explain tells it, and the guard's place in the counters (GDN__GUARDS: none). */
typedef struct cpu_decision {
    gdn_route route;
    gdn_status status; /* GDN_OK, or GDN_REFUSED: nothing runs */
    uint32_t guard;
} cpu_decision;

/* u32 may be NULL: the maxima. Pure. */
void cpu_decide(const gdn__levers *levers, uint32_t isa, const gdn__shape *shape, const uint32_t *u32, cpu_decision *out);
/* The entry's name, "gdn_cpu_prefill_avx512". */
const char *cpu_entry(uint32_t op, uint32_t isa);

/* ---- launch ---- */
gdn_status cpu_bind_rule(const gdn_plan *p, gdn__call *c, gdn_cpu_rule *out, gdn_text *err);
/* Both parts of a round. */
gdn_status cpu_bind_round(const gdn_plan *p, gdn__call *c, gdn_cpu_rule *verify, gdn_cpu_rule *fold, gdn_text *err);
gdn_status cpu_bind_conv(const gdn_plan *p, gdn__call *c, gdn_cpu_conv *out, gdn_text *err);
gdn_status cpu_run_layer(const gdn_plan *p, gdn__call *c, gdn_text *err); /* gates, b/a, norm, states, W4A4 */
gdn_status cpu_run_step(const gdn_plan *p, gdn__call *c, gdn_text *err);
uint64_t cpu_step_workspace(const gdn_step_shape *s);
gdn_status cpu_check_rule(const gdn_plan *p, const gdn_cpu_rule *c, gdn_text *err);
/* What a fold is told to apply must be there. */
gdn_status cpu_check_fold(const gdn_cpu_rule *c, uint32_t op, gdn_text *err);
gdn_status cpu_check_conv(const gdn_plan *p, const gdn_cpu_conv *c, gdn_text *err);
gdn_status cpu_check_accepted(gdn_text *err, uint32_t op, const int32_t *slots, const int32_t *accepted, uint32_t n, uint32_t most);
gdn_status cpu_check_step(const gdn_step_shape *s, const int32_t *slots, uint32_t n, gdn_text *err);
/* one_pool: source and destination slots are the same memory. */
gdn_status cpu_check_pairs(const gdn_state_shape *s, const int32_t *src, const int32_t *dst, uint32_t n, bool one_pool, gdn_text *err);

/* ---- the table's entries ---- */
gdn_status cpu_init(const gdn_host *host, int32_t ordinal, gdn_ctx **out, gdn_text *err);
void cpu_fini(gdn_ctx *ctx);
gdn_status cpu_counters(const gdn_ctx *ctx, gdn_counter *out, uint32_t cap, uint32_t *n);
gdn_status cpu_plan(gdn_ctx *ctx, const gdn_shape *shape, void *stream, gdn_plan **out, gdn_text *err);
void cpu_destroy(gdn_plan *plan);
gdn_status cpu_launch(const gdn_plan *plan, const gdn_launch_args *args);
gdn_status cpu_explain(const gdn_plan *plan, uint32_t n_u32, const uint32_t *u32, gdn_route *out);
gdn_status cpu_route_on(const gdn_ctx *ctx, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                        gdn_text *err);
gdn_status cpu_route(const gdn_host *host, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                     gdn_text *err);

#endif
