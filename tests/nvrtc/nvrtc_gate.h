/* nvrtc_gate.h - compile gates: what ptxas says of an entry, what its machine code holds, and whether both keep to modules.def. */
#ifndef GDN_NVRTC_GATE_H
#define GDN_NVRTC_GATE_H

#include "nvrtc_compile.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { GATE_NAME = 96, GATE_ENTRIES = 64, GATE_TEXT = 8192 };

/* ---- gate_log.c: ptxas -v ---- */
typedef struct gate_usage {
    char entry[GATE_NAME];
    uint32_t registers, spill_bytes, stack_bytes, smem_bytes;
} gate_usage;
/* Entries in the log, at most GATE_ENTRIES. `serialised`: where ptxas says that it gave up
 * overlapping warpgroup products, or NULL; `warnings`: lines that warn. */
uint32_t gate_read_log(const char *log, gate_usage *out, const char **serialised, uint32_t *warnings);

/* ---- gate_sass.c: instructions of .text.<entry> ---- */
typedef struct gate_code {
    char entry[GATE_NAME];
    const unsigned char *text;
    size_t bytes;
} gate_code;
/* Entries of a cubin; 0 when it is no ELF file that can be read. The code lies inside `cubin`. */
uint32_t gate_read_cubin(const void *cubin, size_t bytes, gate_code *out);
/* How many instructions are NAME; -1: no such name in the table. */
long gate_count(const gate_code *code, const char *name);
/* Whether all facts hold; the first that does not is told in why. An empty list holds. */
bool gate_facts(const gate_code *code, const char *facts, char *why, size_t room);

/* Whether the wait for the kernel in front (ACQBULK), without a condition of its own, stands before every EXIT and all that touches global
 * memory (LD, LDG, ST, STG, ATOM, ATOMG, RED, REDG, LDGSTS, UTMALDG, UTMASTG, UBLKCP, UBLKRED) but prefetches (CCTL) and relaxed loads
 * (LDG.STRONG.GPU), which are hints and guesses. In the order of the code: a branch around the wait is not seen. */
bool gate_waits_first(const gate_code *code);

/* ---- gate_check.c ---- */
typedef struct gate_row {
    const char *archs, *module, *form, *entry;
    uint32_t registers, spill_bytes, smem_bytes;
    const char *sass;
    bool met; /* a compiled entry was judged by it */
} gate_row;
/* Compiles one job and judges each of its entries by the rows of its module, form and architecture. One line an entry goes to
 * `out` (NULL: none). Returns the number of violations; they are also listed in `why`. */
uint32_t gate_module(const gdn__nvrtc *n, const gdn_compile_job *job, const char *form, gate_row *rows, uint32_t n_rows, FILE *out,
                     char *why, size_t room);

#endif
