/* check_run.c - the self test's data, launches and report. */
#include "check_self.h"
#include "numbers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Host arrays of a test: a list that is dropped after it. */
typedef struct kept {
    struct kept *next;
} kept;

static void *keep(self_test *s, uint64_t bytes) {
    kept *k = calloc(1, sizeof *k + (size_t)bytes);
    if (!k) return NULL;
    k->next = s->kept;
    s->kept = k;
    return k + 1;
}

static void drop_all(self_test *s) {
    while (s->kept) {
        kept *next = ((kept *)s->kept)->next;
        free(s->kept);
        s->kept = next;
    }
    gdn__arena_free(&s->mem);
    s->mem.g = s->g;
}

static float random_unit(self_test *s) {
    s->seed = s->seed * 1664525u + 1013904223u;
    return (float)(s->seed >> 8) * 0x1p-24f;
}

float *self_random(self_test *s, uint64_t n, float lo, float hi) {
    float *x = keep(s, n * sizeof *x);
    for (uint64_t i = 0; x && i < n; i++) {
        x[i] = lo + (hi - lo) * random_unit(s);
        if (s->act == GDN_BF16) x[i] = gdn__round_bf16(x[i]);
    }
    return x;
}

uint64_t self_put(self_test *s, const float *x, uint64_t n, uint32_t type) {
    uint64_t p = 0;
    return x && gdn__arena_put(&s->mem, x, n, type, &p, &s->err) == GDN_OK ? p : 0;
}

uint64_t self_raw(self_test *s, const void *x, uint64_t bytes) {
    uint64_t p = 0;
    if (gdn__arena_take(&s->mem, bytes, &p, &s->err) || gdn_copy_in(s->g, NULL, p, x, bytes)) return 0;
    return p;
}

uint64_t self_poisoned(self_test *s, uint64_t bytes) {
    uint64_t p = 0;
    if (gdn__arena_take(&s->mem, bytes, &p, &s->err) || gdn_fill(s->g, NULL, p, 0xff, bytes)) return 0;
    return p;
}

float *self_get(self_test *s, uint64_t ptr, uint64_t n, uint32_t type) {
    float *x = keep(s, n * sizeof *x);
    if (x && gdn__arena_get(&s->mem, ptr, n, type, x, &s->err)) x[0] = NAN; /* the report then fails */
    return x;
}

/* Where an operation takes its workspace; -1: it has none. */
static int workspace_of(uint32_t op) {
    switch (op) {
    case GDN_OP_PREFILL: return GDN_PREFILL_P_WORKSPACE;
    case GDN_OP_DECODE: return GDN_DECODE_P_WORKSPACE;
    case GDN_OP_VERIFY: return GDN_VERIFY_P_WORKSPACE;
    case GDN_OP_VERIFY_WOA: return GDN_VERIFY_WOA_P_WORKSPACE;
    case GDN_OP_ROUND: return GDN_ROUND_P_WORKSPACE;
    case GDN_OP_DECODE_STEP: return GDN_DECODE_STEP_P_WORKSPACE;
    default: return -1;
    }
}

gdn_status self_go(self_test *s, const gdn_shape *shape, const uint64_t *ptr, uint32_t n_ptr, const uint32_t *u32, uint32_t n_u32,
                   const char **entry) {
    gdn_hplan *plan = NULL;
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    *entry = NULL;
    gdn_status st = gdn_plan_make(s->g, shape, NULL, &plan, &s->err);
    if (st) return st;
    if ((st = gdn_explain(plan, n_u32, u32, &route))) goto out;
    uint64_t with_workspace[GDN_ROUND_N_PTR] = { 0 }; /* the most */
    memcpy(with_workspace, ptr, n_ptr * sizeof *ptr);
    const int at = workspace_of(shape->op);
    if (at >= 0 && (uint32_t)at < n_ptr && route.workspace_bytes) with_workspace[at] = self_poisoned(s, route.workspace_bytes);
    if (shape->op == GDN_OP_DECODE_STEP && with_workspace[at] && /* it counts there, from zero */
        (st = gdn_fill(s->g, NULL, with_workspace[at], 0, route.workspace_bytes)))
        goto out;
    const gdn_launch_args args = { (uint32_t)sizeof args, n_ptr, n_u32, 0, NULL, with_workspace, u32 };
    st = gdn_launch(plan, &args);
    if (!st) st = gdn_sync(s->g, NULL);
    if (!st)
        *entry = route.entry;
    else
        snprintf(s->text, sizeof s->text, "launch: %s", gdn_status_text(st));
out:
    gdn_plan_free(plan);
    return st;
}

static self_line *next_line(self_test *s, uint32_t op) {
    static self_line spill;
    self_line *l = s->lines < SELF_MAX_LINES ? &s->line[s->lines++] : &spill;
    *l = (self_line) { .op = gdn_op_name(op), .type = s->act == GDN_F32 ? "f32" : "bf16", .err = NAN };
    return l;
}

void self_report(self_test *s, uint32_t op, const char *what, const char *entry, double err, double bound) {
    self_line *l = next_line(s, op);
    l->what = what;
    l->entry = entry;
    l->err = err;
    l->bound = bound;
}

void self_failed(self_test *s, uint32_t op, gdn_status st) {
    self_line *l = next_line(s, op);
    l->what = st > 0 ? "not run" : "failed";
    l->skipped = st == GDN_ABSENT; /* a refusal or an error is a failure of the test */
    snprintf(l->reason, sizeof l->reason, "%.159s", s->text[0] ? s->text : gdn_status_text(st));
}

static int print_report(const self_test *s, const cli_common *c, const gdn_info *info) {
    uint32_t failed = 0, skipped = 0;
    json_t *rows = json_array();
    for (uint32_t i = 0; i < s->lines; i++) {
        const self_line *l = &s->line[i];
        const bool ok = !l->skipped && l->entry && l->err <= l->bound;
        failed += !ok && !l->skipped;
        skipped += l->skipped;
        const char *verdict = l->skipped ? "absent" : ok ? "ok" : "FAILED";
        if (c->json) {
            json_t *row = json_pack("{s:s, s:s, s:s, s:s}", "op", l->op, "type", l->type, "what", l->what, "verdict", verdict);
            if (l->entry) json_object_set_new(row, "entry", json_string(cli_text(l->entry)));
            if (l->entry && isfinite(l->err)) json_object_set_new(row, "error", json_real(l->err));
            if (l->entry) json_object_set_new(row, "bound", json_real(l->bound));
            if (l->reason[0]) json_object_set_new(row, "reason", json_string(cli_text(l->reason)));
            json_array_append_new(rows, row);
        } else if (l->entry) {
            printf("%-11s %-4s %-13s %-36s %.2e  (bound %.1e)  %s\n", l->op, l->type, l->what, l->entry, l->err, l->bound, verdict);
        } else {
            printf("%-11s %-4s %-13s %s  %s\n", l->op, l->type, l->what, l->reason, verdict);
        }
    }
    if (c->json)
        cli_print_json(json_pack("{s:i, s:s, s:s, s:o, s:i, s:i}", "schema", 1, "command", "check", "target", cli_text(info->target),
                                 "checks", rows, "failed", (int)failed, "absent", (int)skipped));
    else
        printf("%u checks on target %s: %u ok, %u failed, %u absent\n", s->lines, info->target, s->lines - failed - skipped, failed,
               skipped);
    if (!c->json) json_decref(rows);
    return failed ? CLI_NO : CLI_OK;
}

int cli_check_self(const cli_common *c) {
    static const gdn_setting woa = { "gdn_woa", "1" };
    cli_common with_woa = *c; /* every operation is to run, also the one that a lever holds back */
    if (with_woa.open.n_settings >= sizeof with_woa.settings / sizeof *with_woa.settings) return cli_error(c, "too many --set"), CLI_USAGE;
    with_woa.settings[with_woa.open.n_settings++] = woa;
    with_woa.open.settings = with_woa.settings;
    self_test *s = calloc(1, sizeof *s);
    if (!s) return cli_error(c, "out of memory"), CLI_NO;
    int rc = CLI_NO;
    if (!(s->g = cli_open(&with_woa))) goto out;
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    if (gdn_describe(s->g, &info)) goto out;
    s->mem.g = s->g;
    s->err = (gdn_text) { s->text, sizeof s->text, 0 };
    s->reference = (info.flags & GDN_F_REFERENCE) != 0;
    s->seed = 20240611;
    static void (*const tests[])(self_test *) = { self_conv,   self_gates, self_ba,     self_prefill, self_decode,
                                                  self_verify, self_norm,  self_states, self_w4a4,    self_decode_step };
    enum { N = sizeof tests / sizeof *tests };
    for (uint32_t i = 0; i < 2 * N; i++) {
        s->act = i < N ? GDN_F32 : GDN_BF16;
        if (i < N && !s->reference) continue; /* f32 activations are the oracle's */
        s->text[0] = 0;
        tests[i % N](s);
        drop_all(s);
        cli_progress("self test", i + 1, 2 * N);
    }
    rc = print_report(s, c, &info);
out:
    if (s->g) drop_all(s);
    gdn_close(s->g);
    free(s);
    return rc;
}
