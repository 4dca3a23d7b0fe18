/* gate_log.c - reads what ptxas -v tells of each entry. */
#include "nvrtc_gate.h"
#include <stdio.h>
#include <string.h>

static bool number_before(const char *line, const char *words, uint32_t *out) {
    const char *at = strstr(line, words);
    if (!at) return false;
    while (at > line && at[-1] == ' ') at--;
    uint32_t v = 0, scale = 1;
    while (at > line && at[-1] >= '0' && at[-1] <= '9') {
        v += (uint32_t)(*--at - '0') * scale;
        scale *= 10;
    }
    *out = v;
    return scale > 1;
}
static bool name_after(const char *line, const char *words, char out[GATE_NAME]) {
    const char *at = strstr(line, words);
    if (!at) return false;
    at += strlen(words);
    size_t n = 0;
    while (at[n] && at[n] != '\'' && at[n] != '\n' && n + 1 < GATE_NAME) n++;
    memcpy(out, at, n);
    out[n] = 0;
    return true;
}
static gate_usage *find(gate_usage *u, uint32_t n, const char *entry) {
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(u[i].entry, entry)) return &u[i];
    return NULL;
}

uint32_t gate_read_log(const char *log, gate_usage *out, const char **serialised, uint32_t *warnings) {
    uint32_t n = 0;
    gate_usage *entry = NULL, *properties = NULL;
    *serialised = NULL;
    *warnings = 0;
    for (const char *p = log; p && *p;) {
        char line[512], name[GATE_NAME];
        const char *end = strchr(p, '\n');
        const size_t all = end ? (size_t)(end - p) : strlen(p), keep = all < sizeof line - 1 ? all : sizeof line - 1;
        memcpy(line, p, keep);
        line[keep] = 0;
        if (!*serialised && strstr(line, "Potential Performance Loss")) *serialised = p;
        p = end ? end + 1 : NULL;
        if (strstr(line, "warning")) ++*warnings;
        if (name_after(line, "Compiling entry function '", name)) {
            if (n == GATE_ENTRIES) break;
            entry = &out[n++];
            memset(entry, 0, sizeof *entry);
            memcpy(entry->entry, name, sizeof name);
        } else if (name_after(line, "Function properties for ", name)) {
            properties = find(out, n, name);
        } else if (strstr(line, "bytes stack frame")) {
            uint32_t stores = 0, loads = 0;
            /* A called function's spills count for the entry being compiled. */
            gate_usage *u = properties ? properties : entry;
            if (!u) continue;
            if (number_before(line, "bytes spill stores", &stores)) u->spill_bytes += stores;
            if (number_before(line, "bytes spill loads", &loads)) u->spill_bytes += loads;
            uint32_t stack = 0;
            if (number_before(line, "bytes stack frame", &stack)) u->stack_bytes += stack;
            properties = NULL;
        } else if (entry && strstr(line, "Used ")) {
            (void)number_before(line, "registers", &entry->registers);
            (void)number_before(line, "bytes smem", &entry->smem_bytes);
        }
    }
    return n;
}
