/* target.h - the target under test through the public API: one handle a process, captured log lines, short calls.
 *
 * Helpers whose name ends in _ok fail the running test with what the library said. */
#ifndef GDN_TEST_TARGET_H
#define GDN_TEST_TARGET_H

#include "gdn.h"
#include "numeric.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

extern const char *target_woa; /* the lever gdn_woa at the first use: "1"; set it to NULL in main to leave it unset */
gdn *target(void);             /* opened at the first use; GDN_TEST_TARGET, else "cpu"; device GDN_TEST_DEVICE, else 0 */
bool target_is_cpu(void);      /* by its name, without opening it */
bool target_is_named(const char *name);
uint32_t target_act(void);      /* GDN_F32 on the cpu target, GDN_BF16 on the others */
bool target_is_light(void);     /* small shapes: under a sanitizer, or on a target that is not the cpu */
int target_setup(void **state); /* group fixtures for cmocka */
int target_teardown(void **state);

void target_log_clear(void);
bool target_logged(const char *part); /* a line since the last clear holds this text */
const char *target_log_text(void);    /* the last of them, for messages */

/* Plans. _try gives the status and the text (never NULL). */
gdn_status plan_try(const void *shape, gdn_hplan **out, char *text, uint32_t cap);
gdn_hplan *plan_ok(const void *shape);
/* The plan is not made, with this status and a text that holds `part`. */
void plan_fails(const void *shape, gdn_status status, const char *part);
uint64_t plan_workspace(const gdn_hplan *p);

gdn_status launch(const gdn_hplan *p, uint32_t n_ptr, const uint64_t *ptr, uint32_t n_u32, const uint32_t *u32);
/* Plan, launch once, free. */
void run_ok(const void *shape, uint32_t n_ptr, const uint64_t *ptr, uint32_t n_u32, const uint32_t *u32);

static inline uint64_t addr_of(const void *p) {
    return (uint64_t)(uintptr_t)p;
}

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))
#define SHAPE_BASE(T, op_, act_) \
    { .struct_size = (uint32_t)sizeof(T), .op = (op_), .act_type = (act_) }

#endif
