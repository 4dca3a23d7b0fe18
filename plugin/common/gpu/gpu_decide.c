/* gpu_decide.c - the pure decision: entry, geometry, and the guard that kept another entry from running. Geometry formulas that a kernel
 * relies on stand in kernels/common/gdn_geometry.h, which both sides include. */
#include "gdn_geometry.h"
#include "gpu_plugin.h"

static uint32_t up(uint64_t n, uint32_t by) {
    return (uint32_t)((n + by - 1) / by);
}

void gpu_take(gpu_decision *d, uint32_t entry, uint32_t gx, uint32_t gy, uint32_t block, uint32_t smem) {
    d->entry = entry;
    d->dims = (gdn_dims) { .grid = { gx, gy, 1 }, .block = { block, 1, 1 }, .smem_bytes = smem };
}

void gpu_refuse(gpu_decision *d, const char *why) {
    d->status = GDN_REFUSED;
    d->route.chosen = 0;
    d->route.guard = why;
}

void gpu_declined(gpu_decision *d, const char *lever, const char *why) {
    if (d->route.n_refused < GDN_ROUTE_REFUSALS) d->route.refused[d->route.n_refused++] = (gdn_refusal) { lever, why };
}

enum { SM_FALLBACK = 132 }; /* when the backend cannot say */

/* Tensor cores, then the twin, then the parent: each asked for by its lever and kept back by its guards. */
static void decide_ba(const gpu_facts *f, const gdn_ba_shape *s, const uint32_t *u32, gpu_decision *d) {
    const gdn__levers *lv = f->levers;
    const uint32_t m = u32 ? u32[GDN_BA_GATES_U_M] : s->max_m, sm = f->sm_count ? f->sm_count : SM_FALLBACK;
    const uint32_t twin = gdn__ba_pick(lv->ba_hopper, gpu_has(f->present, GPU_E_BA_TWIN), m, s->N, s->K, s->K_stride, sm);
    d->tc_guard = gdn__ba_tc_pick(lv->ba_tc, gpu_has(f->present, GPU_E_BA_TC), m, s->N, s->K, sm);
    if (d->tc_guard == GDN__BA_TC_TAKEN) {
        const uint32_t columns = up(s->N, 32) * 32;
        gpu_take(d, GPU_E_BA_TC, (uint32_t)GDN_BA_TC_GRID(m), 1, GDN_BA_TC_BLOCK, GDN_BA_TC_SMEM(columns));
        d->route.lever = "ssm_ba_gates_tc";
        d->route.lever_where = lv->ba_tc_where;
        d->route.lever_source = lv->ba_tc_source;
        return;
    }
    const char *const tc_lost = d->tc_guard == GDN__BA_TC_KERNEL_ABSENT ? gpu_lost(f, GPU_E_BA_TC) : NULL;
    const char *const twin_lost = twin == GDN_BA_KERNEL_ABSENT ? gpu_lost(f, GPU_E_BA_TWIN) : NULL;
    d->tc_text = tc_lost ? tc_lost : gdn__ba_tc_guard_text(d->tc_guard);
    d->twin_text = twin_lost ? twin_lost : gdn__ba_guard_text(twin);
    if (lv->ba_tc) gpu_declined(d, "ssm_ba_gates_tc", d->tc_text);
    if (lv->ba_hopper && twin != GDN_BA_TWIN) gpu_declined(d, "ssm_ba_gates_hopper", d->twin_text);
    if (twin == GDN_BA_TWIN) {
        gpu_take(d, GPU_E_BA_TWIN, m, 1, 256, 0);
    } else {
        gpu_take(d, GPU_E_BA_PARENT, up(s->N, 4), m < 65535 ? m : 65535, 256, 0);
        if (lv->ba_hopper) {
            d->guard = GDN__G_BA + twin;
            d->route.chosen = 0;
            d->route.guard = d->twin_text;
        }
    }
    if (lv->ba_hopper) {
        d->route.lever = "ssm_ba_gates_hopper";
        d->route.lever_where = lv->ba_where;
        d->route.lever_source = lv->ba_source;
    }
    if (lv->ba_tc && !d->route.guard) { /* asked for before the twin: its refusal is the answer unless the twin was refused too */
        d->guard = GDN__G_BA_TC + d->tc_guard;
        d->route.chosen = 0;
        d->route.guard = d->tc_text;
        d->route.lever = "ssm_ba_gates_tc";
        d->route.lever_where = lv->ba_tc_where;
        d->route.lever_source = lv->ba_tc_source;
    }
}

static void decide_conv(const gdn_conv_shape *s, const uint32_t *u32, gpu_decision *d) {
    const bool fused = s->base.op == GDN_OP_CONV_FUSED;
    const uint32_t batch = u32 ? u32[GDN_CONV1D_U_BATCH] : s->max_batch, len = u32 ? u32[GDN_CONV1D_U_SEQ_LEN] : 0;
    /* Packed rows cannot be counted on the host: the plan's maximum bounds them, or the longest sequence when it is told. */
    uint64_t tokens = s->max_tokens;
    if (!s->offsets && u32) tokens = (uint64_t)batch * len;
    if (s->offsets && len && (uint64_t)batch * len < tokens) tokens = (uint64_t)batch * len;
    const uint64_t lanes =
        fused ? GDN_CONV_FUSED_LANES((uint64_t)s->nk, s->k_dim, (uint64_t)s->nv, s->v_dim) : GDN_CONV1D_LANES((uint64_t)s->channels);
    const uint64_t grid = GDN_CONV_GRID(tokens, batch, lanes);
    if (fused && s->k_dim > GDN_CONV_MAX_HEAD)
        gpu_refuse(d, "k_dim is above 256");
    else if (grid > INT32_MAX)
        gpu_refuse(d, "more blocks than a grid has");
    else
        gpu_take(d, fused ? GPU_E_CONV_FUSED : GPU_E_CONV1D, (uint32_t)grid, 1, GDN_CONV_BLOCK, 0);
}

static void decide_clear(const gdn_shape *s, const uint32_t *u32, gpu_decision *d) {
    const uint32_t words = u32 ? up(u32[GDN_FLAG_CLEAR_U_COUNT], 32) : 1;
    if (gdn__by_sequence(s))
        gpu_take(d, GPU_E_FLAG_CLEAR_SEQ, words < 1024 ? words : 1024, 1, 32, 0);
    else
        gpu_take(d, GPU_E_FLAG_CLEAR, 1, 1, 32, 0);
}

void gpu_decide(const gpu_facts *f, const gdn__shape *s, const uint32_t *u32, gpu_decision *d) {
    const uint32_t op = s->base.op;
    *d = (gpu_decision) { .entry = GPU_ENTRIES, .guard = GDN__GUARDS, .tc_guard = GDN__BA_TC_NOT_REQUESTED };
    d->route.struct_size = (uint32_t)sizeof d->route;
    d->route.chosen = 1;
    switch (op) {
    case GDN_OP_BA_GATES: decide_ba(f, &s->ba, u32, d); break;
    case GDN_OP_BA_GEMV: gpu_take(d, GPU_E_BA_GEMV, up(s->ba.N, 4), 1, 256, 0); break;
    case GDN_OP_GATES: {
        const uint64_t n = (uint64_t)(u32 ? u32[GDN_GATES_U_ROWS] : s->gates.max_rows) * s->gates.nv;
        gpu_take(d, GPU_E_GATES, n > (uint64_t)1 << 30 ? 1u << 22 : up(n, 256), 1, 256, 0);
        break;
    }
    case GDN_OP_CONV1D:
    case GDN_OP_CONV_FUSED: decide_conv(&s->conv, u32, d); break;
    case GDN_OP_NORM: {
        const uint32_t rows = u32 ? u32[GDN_NORM_U_ROWS] : s->norm.max_rows;
        gpu_take(d, GPU_E_NORM, (uint32_t)GDN_NORM_GRID(rows, s->norm.dim), 1, GDN_NORM_BLOCK, 0);
        break;
    }
    case GDN_OP_STATE_COPY:
    case GDN_OP_STATE_ZERO: {
        const uint32_t count = u32 ? u32[0] : s->state.max_count;
        const bool copy = op == GDN_OP_STATE_COPY;
        const uint64_t grid = GDN_STATE_GRID(count, s->state.bytes);
        if (grid > INT32_MAX)
            gpu_refuse(d, "more blocks than a grid has");
        else
            gpu_take(d, copy ? GPU_E_STATE_COPY : GPU_E_STATE_ZERO, (uint32_t)grid, 1, GDN_STATE_BLOCK, 0);
        break;
    }
    case GDN_OP_DECODE:
    case GDN_OP_VERIFY:
    case GDN_OP_VERIFY_WOA:
    case GDN_OP_FOLD: gpu_decide_step(f, &s->rule, u32, d); break;
    case GDN_OP_ROUND: gpu_decide_round(f, &s->rule, u32, d); break;
    case GDN_OP_FLAG_CLEAR: decide_clear(&s->base, u32, d); break;
    case GDN_OP_W4A4_QUANT:
    case GDN_OP_W4A4_GEMV: gpu_decide_w4a4(f, &s->w4a4, u32, d); break;
    case GDN_OP_DECODE_STEP: gpu_decide_decode_step(f, &s->step, u32, d); break;
    case GDN_OP_PREFILL: gpu_decide_prefill(f, &s->rule, u32, d); break;
    default: break;
    }
    if (d->status == GDN_OK && (d->dims.grid[0] > INT32_MAX || d->dims.grid[1] > 65535 || d->dims.grid[2] > 65535))
        gpu_refuse(d, "more blocks than a grid has");
    if (d->status == GDN_REFUSED) {
        if (!d->route.n_refused) gpu_declined(d, d->route.lever, d->route.guard);
        return;
    }
    if (!gpu_has(f->present, d->entry)) {
        d->status = GDN_ABSENT;
        d->entry = GPU_ENTRIES;
        d->route.chosen = 0;
        return;
    }
    d->route.entry = gpu_entry_name(d->entry);
    d->route.smem_bytes = d->dims.smem_bytes;
    for (int i = 0; i < 3; i++) {
        d->route.grid[i] = d->dims.grid[i];
        d->route.block[i] = d->dims.block[i];
    }
}
