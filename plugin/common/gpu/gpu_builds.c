/* gpu_builds.c - builds of the rule's modules, in the form that a plan has: asked for by plans, loaded together, and with those that the
 * other plans of the same model will ask for. */
#include "gpu_rule.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char did_not_load[] = "it did not load";

/* No build, no entry: absent from the plan, whose decision has another or says so. */
void gpu_lose(gdn_plan *p, uint32_t entry, const char *why, const char *guard) {
    gpu_drop(&p->present, entry);
    p->lost[entry] = guard ? guard : gpu_entry_lost(entry);
    if (!p->making->why[0]) snprintf(p->making->why, sizeof p->making->why, "%s", why && *why ? why : did_not_load);
}

static void note(gpu_making *k, uint32_t module, uint32_t form) {
    for (uint32_t i = 0; i < k->n; i++)
        if (k->build[i].module == module && k->build[i].form == form) return;
    if (k->n < GPU_BUILDS) k->build[k->n++] = (gpu_build) { module, form }; /* else it is loaded alone, when it is bound */
}

uint32_t gpu_form_at_hand(const gdn_ctx *ctx, uint32_t entry, uint32_t form, uint32_t looked_at) {
    const uint32_t module = gpu_entry_module(entry), half = form & GPU_HALF;
    if (atomic_load(&ctx->form[module][form].state) == GPU_LOADED) return form;
    for (uint32_t f = half; f < half + GPU_HALF; f++)
        if ((f & looked_at) == (form & looked_at) && atomic_load(&ctx->form[module][f].state) == GPU_LOADED) return f;
    return form;
}

/* ---- loading ---- */
/* What fits into cap bytes of a text that was `full` bytes long: whole lines, then how much is missing. */
static void clip(char *out, size_t cap, const char *text, uint64_t full, const char *where) {
    enum { MARK = 64 };
    const size_t have = strlen(text);
    size_t keep = full < cap && full <= have ? have : have < cap - MARK ? have : cap - MARK;
    memcpy(out, text, keep);
    out[keep] = 0;
    if (full <= keep) return;
    char *const end = strrchr(out, '\n');
    if (end) keep = (size_t)(end - out);
    snprintf(out + keep, cap - keep, "%s... (%llu more bytes%s)", end ? "\n" : "", (unsigned long long)(full - keep), where);
}

void gpu_reason(char *out, size_t cap, uint32_t module, const char *text, uint64_t full, const char *where) {
    const char *const file = gpu_module_file(module);
    char all[GPU_LOG_BYTES + 64];
    if (!text || !*text) text = did_not_load;
    if (full < strlen(text)) full = strlen(text);
    const bool named = strncmp(text, file, strlen(file)) == 0; /* a compiler's text begins with it */
    full += (uint64_t)snprintf(all, sizeof all, "%s%s%s", named ? "" : file, named ? "" : ": ", text) - strlen(text);
    clip(out, cap, all, full, where);
}

/* "<entry> did not load: <first line>" of every entry of a module, one behind the other; NULL without memory. */
static char *guards_of(uint32_t module, const char *reason) {
    enum { FIRST_LINE = 160 };
    const size_t line = strcspn(reason, "\n"), keep = line < FIRST_LINE ? line : FIRST_LINE;
    size_t size = 1, at = 0;
    for (uint32_t e = 0; e < GPU_ENTRIES; e++)
        if (gpu_entry_module(e) == module) size += strlen(gpu_entry_lost(e)) + 2 + keep + 3 + 1;
    char *const out = malloc(size);
    for (uint32_t e = 0; out && e < GPU_ENTRIES; e++)
        if (gpu_entry_module(e) == module)
            at += 1 + (size_t)snprintf(out + at, size - at, "%s: %.*s%s", gpu_entry_lost(e), (int)keep, reason, keep < line ? "..." : "");
    return out;
}
static const char *guard_of(const gpu_form *f, uint32_t entry) {
    const char *at = f->guards;
    for (uint32_t e = 0; at && e < entry; e++)
        if (gpu_entry_module(e) == gpu_entry_module(entry)) at += strlen(at) + 1;
    return at;
}

/* The caller gets a short answer; the text, which may be a compiler's, is the log's. */
static void settle(gdn_ctx *ctx, const gpu_build *b, void *handle, gdn_status status, const char *text, uint64_t full) {
    gpu_form *f = &ctx->form[b->module][b->form];
    char said[GPU_LOG_BYTES + 128], why[GPU_REASON_BYTES - 96];
    if (handle) {
        f->handle = handle;
        atomic_store(&f->state, GPU_LOADED);
        return;
    }
    gpu_reason(said, sizeof said, b->module, text, full, "");
    gpu_reason(why, sizeof why, b->module, text, full, " in the log");
    f->guards = guards_of(b->module, said);
    f->status = status ? status : GDN_E_LOAD;
    f->why = malloc(strlen(why) + 1);
    if (f->why) memcpy(f->why, why, strlen(why) + 1);
    atomic_store(&f->state, GPU_FAILED);
    ctx->host.log(ctx->host.user, GDN_LOG_WARN, "modules", said);
}

/* Under the context's lock. Only a capture and a fork are answers: a build that fails is remembered as its own. */
static gdn_status load(gdn_ctx *ctx, uint32_t n, const gpu_build *build, gdn_text *err) {
    const gdn_backend *b = ctx->host.backend;
    gdn_compile_job job[GPU_BUILDS] = { 0 };
    void *handle[GPU_BUILDS] = { NULL };
    gdn_status status[GPU_BUILDS] = { 0 };
    gdn_text reasons[GPU_BUILDS];
    char(*text)[GPU_LOG_BYTES] = calloc(n, sizeof *text);
    if (!text) return gdn__fail(err, GDN_E_NOMEM, "%s: out of memory for %u builds", gdn__gpu_target.name, n);
    gdn_status st = GDN_OK;
    for (uint32_t i = 0; i < n && !st; i++) {
        reasons[i] = (gdn_text) { text[i], sizeof text[i], 0 };
        st = gpu_job_of(build[i].module, build[i].form, ctx->arch, &job[i]);
        if (st)
            (void)gdn__fail(err, st, "%s: %s is not among the embedded sources", gdn__gpu_target.name, gpu_module_file(build[i].module));
    }
    if (!st) {
        const gdn_status all = b->modules_load(b->user, ctx->ordinal, n, job, handle, status, reasons);
        if (all == GDN_E_CAPTURE || all == GDN_E_FORKED) {
            st = gdn__fail(err, all, "%s: %s", gdn__gpu_target.name, text[0]);
            for (uint32_t i = 0; i < n; i++)
                if (handle[i]) b->module_unload(b->user, ctx->ordinal, handle[i]);
        } else {
            for (uint32_t i = 0; i < n; i++) settle(ctx, &build[i], handle[i], status[i], text[i], reasons[i].len);
        }
    }
    free(text);
    return st;
}

/* Those that nobody has loaded meanwhile, the long compiles first. */
static gdn_status load_missing(gdn_ctx *ctx, uint32_t n, const gpu_build *build, gdn_text *err) {
    gpu_build left[GPU_BUILDS];
    uint32_t m = 0;
    gdn_status st = GDN_OK;
    (void)pthread_mutex_lock(&ctx->loading);
    for (uint32_t i = 0; i < n; i++) {
        if (atomic_load(&ctx->form[build[i].module][build[i].form].state) != GPU_UNTRIED) continue;
        uint32_t at = m++;
        for (; at && gpu_module_rank(left[at - 1].module) > gpu_module_rank(build[i].module); at--) left[at] = left[at - 1];
        left[at] = build[i];
    }
    if (m) st = load(ctx, m, left, err);
    (void)pthread_mutex_unlock(&ctx->loading);
    return st;
}

gdn_status gpu_form_entry(gdn_plan *p, uint32_t entry, uint32_t form, const char *name, void **out, gdn_text *err) {
    gdn_ctx *ctx = p->ctx;
    const gdn_backend *b = ctx->host.backend;
    const gpu_build build = { gpu_entry_module(entry), form };
    gpu_form *f = &ctx->form[build.module][form];
    *out = NULL;
    if (p->making->asking) {
        if (atomic_load(&f->state) == GPU_FAILED) gpu_lose(p, entry, f->why, guard_of(f, entry));
        if (atomic_load(&f->state) == GPU_UNTRIED) note(p->making, build.module, form);
        return GDN_OK;
    }
    if (atomic_load(&f->state) == GPU_UNTRIED) {
        const gdn_status st = load_missing(ctx, 1, &build, err);
        if (st) return st;
    }
    if (atomic_load(&f->state) == GPU_FAILED) {
        gpu_lose(p, entry, f->why, guard_of(f, entry));
        return GDN_OK;
    }
    const gdn_status st = b->function(b->user, f->handle, name, out);
    if (st == GDN_E_CAPTURE || st == GDN_E_FORKED) return gdn__fail(err, st, "%s: entry %s", gpu_module_file(build.module), name);
    if (st || !*out) {
        char why[GPU_REASON_BYTES];
        snprintf(why, sizeof why, "%s: entry %s is missing", gpu_module_file(build.module), name);
        *out = NULL;
        gpu_lose(p, entry, why, NULL);
        ctx->host.log(ctx->host.user, GDN_LOG_WARN, "modules", why);
    }
    return GDN_OK;
}

/* ---- which ---- */
/* The other plans of a model have its state layout, head map and gates: heads of 128, states in a pool. What only a lever or a flag of
 * another plan asks for stays that plan's, and a fold's shape may say nothing of gates. */
static void ask_for_the_model(const gdn_plan *p, gpu_making *k) {
    static const uint32_t ops[] = { GDN_OP_PREFILL, GDN_OP_DECODE, GDN_OP_VERIFY, GDN_OP_VERIFY_WOA, GDN_OP_FOLD, GDN_OP_ROUND };
    const gdn_rule_shape *s = &p->shape.rule;
    if (p->shape.base.op == GDN_OP_FOLD || s->k_dim != 128 || s->state_type != GDN_F32 || gdn__bf16_state(s)) return;
    for (uint32_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        gdn_plan q = { .ctx = p->ctx, .op = gdn__op_find(ops[i]), .shape = p->shape, .present = gpu_present(p->ctx), .making = k };
        gdn_rule_shape *const t = &q.shape.rule;
        t->base.op = ops[i];
        t->base.flags &= GDN_QK_L2NORM;
        t->state_addr = GDN_STATE_POOL;
        t->offsets = GDN_OFFSETS_NONE;
        t->ckpt_every = 0;
        t->max_rows = 4;
        if (p->shape.base.op != GDN_OP_PREFILL) t->max_tokens = 0;
        (void)gpu_bind_rule_op(&q, NULL); /* asks */
    }
}

/* Once through: what is not there is loaded in one batch; k->n: how much that was. */
static gdn_status ask_and_load(gdn_plan *p, gdn_text *err) {
    const uint32_t op = p->shape.base.op;
    gpu_making *const k = p->making;
    const gpu_set present = p->present;
    k->asking = true;
    k->n = 0;
    gdn_status st = op == GDN_OP_BA_GATES ? gpu_bind_ba(p, err) : gpu_bind_rule_op(p, err);
    if (!st && k->n && op != GDN_OP_BA_GATES && op != GDN_OP_FLAG_CLEAR) {
        char why[GPU_REASON_BYTES];
        memcpy(why, k->why, sizeof why);
        ask_for_the_model(p, k);
        memcpy(k->why, why, sizeof why);
    }
    k->asking = false;
    p->present = present;
    return st || !k->n ? st : load_missing(p->ctx, k->n, k->build, err);
}

/* What did not load may have others in its place, which are the next batch. */
gdn_status gpu_builds_for(gdn_plan *p, gdn_text *err) {
    gdn_status st;
    do {
        st = ask_and_load(p, err);
    } while (!st && p->making->n);
    return st;
}

gpu_set gpu_present_for(const gdn_ctx *ctx, const gdn__shape *s, gpu_making *k, const char *lost[GPU_ENTRIES]) {
    *k = (gpu_making) { .asking = true };
    /* Asking changes nothing in a context. */
    gdn_plan p = {
        .ctx = (gdn_ctx *)(uintptr_t)ctx, .op = gdn__op_find(s->base.op), .shape = *s, .present = gpu_present(ctx), .making = k
    };
    gpu_lost_in_advance(ctx, p.lost);
    if (s->base.op == GDN_OP_BA_GATES)
        (void)gpu_bind_ba(&p, NULL);
    else
        (void)gpu_bind_rule_op(&p, NULL);
    memcpy(lost, p.lost, sizeof p.lost);
    return p.present;
}
