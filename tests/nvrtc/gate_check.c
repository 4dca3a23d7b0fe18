/* gate_check.c - one job through the compiler and every entry of it past its row. */
#include "nvrtc_gate.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct verdicts {
    char *why;
    size_t room, used;
    uint32_t count;
    const gdn_compile_job *job;
    FILE *out;
} verdicts;

static void violation(verdicts *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void violation(verdicts *v, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    v->count++;
    if (v->out) fprintf(v->out, "FAIL %-8s %s: %s\n", v->job->arch, v->job->name, text);
    if (v->used >= v->room) return;
    const int n = snprintf(v->why + v->used, v->room - v->used, "%s\n", text);
    if (n > 0) v->used += (size_t)n;
}
static bool has_word(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == 0 || p[n] == ' ')) return true;
    return false;
}
static bool row_is_for(const gate_row *r, const gdn_compile_job *job, const char *form) {
    return has_word(r->archs, job->arch) && !strcmp(r->module, job->name) && !strcmp(r->form, form);
}

static void judge(verdicts *v, const gate_code *code, const gate_usage *use, gate_row *r) {
    const uint32_t before = v->count;
    char why[256];
    r->met = true;
    if (use->registers > r->registers) violation(v, "%s: %u registers, budget %u", code->entry, use->registers, r->registers);
    if (use->spill_bytes > r->spill_bytes) violation(v, "%s: %u bytes spilled, budget %u", code->entry, use->spill_bytes, r->spill_bytes);
    if (use->smem_bytes > r->smem_bytes)
        violation(v, "%s: %u bytes of static shared memory, budget %u", code->entry, use->smem_bytes, r->smem_bytes);
    if (!gate_facts(code, r->sass, why, sizeof why)) violation(v, "%s: %s", code->entry, why);
    if (!gate_waits_first(code)) violation(v, "%s: touches memory before it has waited for the kernel in front (gdn_begin)", code->entry);
    if (v->out && v->count == before)
        fprintf(
            v->out,
            "ok   %-8s %-24s %-36s registers %3u/%3u spill %u/%u stack %u smem %u/%u | FFMA %ld FMUL %ld FADD %ld HMMA %ld HGMMA %ld | %s %s\n",
            v->job->arch, v->job->name, code->entry, use->registers, r->registers, use->spill_bytes, r->spill_bytes, use->stack_bytes,
            use->smem_bytes, r->smem_bytes, gate_count(code, "FFMA"), gate_count(code, "FMUL"), gate_count(code, "FADD"),
            gate_count(code, "HMMA"), gate_count(code, "HGMMA"), r->sass, r->form);
}

static void judge_all(verdicts *v, const gdn__compiled *c, const char *form, gate_row *rows, uint32_t n_rows) {
    gate_usage use[GATE_ENTRIES];
    gate_code code[GATE_ENTRIES];
    const char *serialised;
    uint32_t warnings;
    const uint32_t n_use = gate_read_log(c->log, use, &serialised, &warnings), n_code = gate_read_cubin(c->data, c->size, code);
    if (serialised) violation(v, "ptxas: %.*s", (int)strcspn(serialised, "\n"), serialised);
    if (warnings) violation(v, "%u compiler warnings: %.600s", warnings, c->log);
    if (!n_code) violation(v, "no entry can be read from the cubin");
    for (uint32_t i = 0; i < n_code; i++) {
        const gate_usage *u = NULL;
        gate_row *r = NULL;
        for (uint32_t k = 0; k < n_use; k++)
            if (!strcmp(use[k].entry, code[i].entry)) u = &use[k];
        for (uint32_t k = 0; k < n_rows; k++)
            if (row_is_for(&rows[k], v->job, form) && !strcmp(rows[k].entry, code[i].entry)) r = &rows[k];
        if (!u || !u->registers)
            violation(v, "%s: ptxas does not tell what it uses", code[i].entry);
        else if (!r)
            violation(v, "%s: no row (registers %u, spill %u, smem %u, FFMA %ld, HMMA %ld, HGMMA %ld)", code[i].entry, u->registers,
                      u->spill_bytes, u->smem_bytes, gate_count(&code[i], "FFMA"), gate_count(&code[i], "HMMA"),
                      gate_count(&code[i], "HGMMA"));
        else
            judge(v, &code[i], u, r);
    }
    for (uint32_t k = 0; k < n_rows; k++) {
        bool there = !row_is_for(&rows[k], v->job, form);
        for (uint32_t i = 0; i < n_code && !there; i++) there = !strcmp(code[i].entry, rows[k].entry);
        if (!there) violation(v, "%s: the entry is missing", rows[k].entry);
    }
}

uint32_t gate_module(const gdn__nvrtc *n, const gdn_compile_job *job, const char *form, gate_row *rows, uint32_t n_rows, FILE *out,
                     char *why, size_t room) {
    verdicts v = { .why = why, .room = room, .job = job, .out = out };
    char text[GATE_TEXT];
    gdn_text err = { text, sizeof text, 0 };
    gdn__compiled c;
    text[0] = why[0] = 0;
    const gdn_status st = gdn__nvrtc_compile(n, job, "--ptxas-options=-v", &c, &err);
    if (st != GDN_OK)
        violation(&v, "does not compile: %.900s", text);
    else
        judge_all(&v, &c, form, rows, n_rows);
    gdn__compiled_free(&c);
    return v.count;
}
