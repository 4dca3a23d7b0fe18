/* hplan.c - plans through the host: they keep their generation alive and forward to the plugin. Launching takes no lock. */
#include "host_internal.h"

#include <stdlib.h>

/* One line for what only a caller's mistake can cause, so that a status of -1 does not stay without a reason. */
static gdn_status host_bug(const gdn__generation *gen, const char *what) {
    gdn__log_raw(&gen->log, GDN_LOG_HOST_BUG, "host", what);
    return GDN_E_ARG;
}

static gdn_status check_shape(const gdn_shape *shape, gdn_text *err) {
    if (!shape || shape->struct_size < sizeof *shape) {
        gdn__text_set(err, !shape ? "shape is NULL" : "shape.struct_size is %u, at least %u are needed",
                      shape ? (unsigned)shape->struct_size : 0, (unsigned)sizeof *shape);
        return shape ? GDN_E_ABI : GDN_E_ARG;
    }
    if (!gdn_op_name(shape->op)) {
        gdn__text_set(err, "shape.op is %u, which is no operation", (unsigned)shape->op);
        return GDN_E_ARG;
    }
    return GDN_OK;
}

gdn_status gdn_plan_make(gdn *g, const gdn_shape *shape, void *stream, gdn_hplan **out, gdn_text *err) {
    gdn__text_set(err, "%s", "");
    if (!g || !out) {
        gdn__text_set(err, "gdn_plan_make: %s is NULL", g ? "out" : "g");
        return GDN_E_ARG;
    }
    *out = NULL;
    gdn_status st = check_shape(shape, err);
    if (st != GDN_OK) return st;
    gdn__generation *gen = g->gen;
    if (gen->dry) {
        gdn__text_set(err, "gdn_plan_make: target '%s' was opened with GDN_OPEN_DRY: it has no device", gen->plugin.id.target);
        return GDN_E_ARG;
    }
    gdn_hplan *plan = gdn__alloc(sizeof *plan);
    if (!plan) {
        gdn__text_set(err, "%s", gdn_status_text(GDN_E_NOMEM));
        return GDN_E_NOMEM;
    }
    st = gen->plugin.ops.plan(gen->ctx, shape, stream, &plan->plan, err);
    if (st == GDN_OK && !plan->plan) {
        gdn__text_set(err, "%s: the plugin made no plan", gdn_op_name(shape->op));
        st = GDN_E_INTERNAL;
    }
    if (st != GDN_OK) {
        if (err && !err->len) gdn__text_set(err, "%s: %s", gdn_op_name(shape->op), gdn_status_text(st));
        free(plan);
        return st;
    }
    gdn__generation_ref(gen);
    plan->gen = gen;
    *out = plan;
    return GDN_OK;
}

void gdn_plan_free(gdn_hplan *plan) {
    if (!plan) return;
    plan->gen->plugin.ops.destroy(plan->plan);
    gdn__generation_unref(plan->gen);
    free(plan);
}

gdn_status gdn_launch(const gdn_hplan *plan, const gdn_launch_args *args) {
    if (!plan) return GDN_E_ARG;
    if (!args) return host_bug(plan->gen, "gdn_launch: args is NULL");
    if (args->struct_size < GDN_THROUGH(gdn_launch_args, u32)) {
        (void)host_bug(plan->gen, "gdn_launch: args.struct_size is too small");
        return GDN_E_ABI;
    }
    return plan->gen->plugin.ops.launch(plan->plan, args);
}

/* The caller's route must at least hold the entry and the guard: plugins ask for no less. */
static gdn_status check_route(const gdn_route *out) {
    return !out ? GDN_E_ARG : out->struct_size < GDN_THROUGH(gdn_route, guard) ? GDN_E_ABI : GDN_OK;
}

gdn_status gdn_explain(const gdn_hplan *plan, uint32_t n_u32, const uint32_t *u32, gdn_route *out) {
    if (!plan) return GDN_E_ARG;
    const gdn_status st = check_route(out);
    if (st != GDN_OK) {
        (void)host_bug(plan->gen, "gdn_explain: out is NULL or its struct_size is too small");
        return st;
    }
    if (n_u32 && !u32) return host_bug(plan->gen, "gdn_explain: u32 is NULL");
    return plan->gen->plugin.ops.explain(plan->plan, n_u32, u32, out);
}

gdn_status gdn_route_for(gdn *g, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                         gdn_text *err) {
    gdn__text_set(err, "%s", "");
    gdn_status st = !g || (n_u32 && !u32) ? GDN_E_ARG : check_route(out);
    if (st != GDN_OK) {
        gdn__text_set(err, "gdn_route_for: %s",
                      !g              ? "g is NULL"
                      : n_u32 && !u32 ? "u32 is NULL"
                                      : "out is NULL or its struct_size is too small");
        return st;
    }
    st = check_shape(shape, err);
    if (st != GDN_OK) return st;
    const gdn__generation *gen = g->gen;
    if (!gen->dry && gen->plugin.ops.route_on) return gen->plugin.ops.route_on(gen->ctx, sm_count, shape, n_u32, u32, out, err);
    if (!gen->plugin.ops.route) {
        gdn__text_set(err, "target '%s' (ABI %u.%u) does not offer 'route'", gen->plugin.id.target, (unsigned)gen->plugin.id.abi_major,
                      (unsigned)gen->plugin.id.abi_minor);
        return GDN_ABSENT;
    }
    return gen->plugin.ops.route(&gen->host, sm_count ? sm_count : gen->device.sm_count, shape, n_u32, u32, out, err);
}

gdn_status gdn_counters(const gdn *g, gdn_counter *out, uint32_t cap, uint32_t *n) {
    if (!g || !n || (cap && !out)) return GDN_E_ARG;
    *n = 0;
    if (!g->gen->plugin.ops.counters || g->gen->dry) return GDN_ABSENT;
    return g->gen->plugin.ops.counters(g->gen->ctx, out, cap, n);
}
