/* bf16_state.c - decode and verify on states in bf16: the f32 code of a step on a widened copy, and each state that is kept rounded to
 * nearest even where it is stored. Widening is exact, so outputs and unrounded states are the f32 form's.
 *
 * rows() gives the outputs and vn of all rows; the state after row t is then t+1 updates of the copy, which is fold(). */
#include "step.h"

enum { HEAD = GDN__STEP_DIM * GDN__STEP_DIM };

static void widen(const uint16_t *from, float *to) {
    for (uint32_t i = 0; i < HEAD; i++) to[i] = gdn_bf16_to_f32(from[i]);
}
static void narrow(const float *from, uint16_t *to) {
    for (uint32_t i = 0; i < HEAD; i++) to[i] = gdn_f32_to_bf16(from[i]);
}

void gdn__step_rows_bf16(const gdn_cpu_rule *c, gdn__step *u, const float *in, bool fresh, float *const *after) {
    _Alignas(64) float head[HEAD], state[HEAD];
    const gdn__step_table *const step = gdn__step_pick(c);
    const uint32_t rows = u->rows;

    if (!fresh) widen((const uint16_t *)(const void *)in, head);
    gdn__step_source(c, u, head, fresh);
    for (uint32_t t = 0; t < rows; t++) u->after[t] = NULL;
    step->rows(u);
    u->after[0] = state;
    for (uint32_t t = 0; t < rows; t++) {
        if (!after[t]) continue;
        u->rows = t + 1;
        step->fold(u);
        narrow(state, (uint16_t *)(void *)after[t]);
    }
    u->rows = rows;
}
