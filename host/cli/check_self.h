/* check_self.h - the self test of `gdn check`: every operation of a target against f64 references. */
#ifndef GDN_CLI_CHECK_SELF_H
#define GDN_CLI_CHECK_SELF_H

#include "arena.h"
#include "cli.h"

/* One line of the report. bound is what err must not pass; entry what ran (NULL: nothing did, reason says why). */
typedef struct self_line {
    const char *op, *type, *what, *entry;
    char reason[160];
    double err, bound;
    bool skipped;
} self_line;

enum { SELF_MAX_LINES = 128 };
typedef struct self_test {
    gdn *g;
    gdn__arena mem;
    uint32_t act;   /* GDN_F32 or GDN_BF16, for the operation under test */
    bool reference; /* the target calls itself the oracle: tight bounds */
    uint32_t seed;
    void *kept; /* host arrays of the running test */
    self_line line[SELF_MAX_LINES];
    uint32_t lines;
    char text[256];
    gdn_text err;
} self_test;

/* check_run.c: data and launches */
float *self_random(self_test *s, uint64_t n, float lo, float hi); /* already rounded to the activation type; NULL: out of memory */
uint64_t self_put(self_test *s, const float *x, uint64_t n, uint32_t type);
uint64_t self_raw(self_test *s, const void *x, uint64_t bytes);
uint64_t self_poisoned(self_test *s, uint64_t bytes);
float *self_get(self_test *s, uint64_t ptr, uint64_t n, uint32_t type);
/* Plans, launches, synchronises; *entry is what ran. */
gdn_status self_go(self_test *s, const gdn_shape *shape, const uint64_t *ptr, uint32_t n_ptr, const uint32_t *u32, uint32_t n_u32,
                   const char **entry);
void self_report(self_test *s, uint32_t op, const char *what, const char *entry, double err, double bound);
void self_failed(self_test *s, uint32_t op, gdn_status st);

/* check_rule.c, check_layer.c, check_step.c */
void self_prefill(self_test *s);
void self_decode(self_test *s);
void self_verify(self_test *s);
void self_decode_step(self_test *s);
void self_conv(self_test *s);
void self_gates(self_test *s);
void self_ba(self_test *s);
void self_norm(self_test *s);
void self_states(self_test *s);
void self_w4a4(self_test *s);

int cli_check_self(const cli_common *c);

#endif
