/* conv_case.h - one call of conv1d or conv_fused: built from a short description, run, judged in f64.
 *
 * conv_run() checks outputs against oracle_conv (and the L2 norm), demands the exact bytes of the whole state buffer (new
 * states hold only inputs and old columns, so there is nothing to round), untouched rows and paddings, the same bytes from
 * a second call, and each sequence alone. */
#ifndef GDN_TEST_CONV_CASE_H
#define GDN_TEST_CONV_CASE_H

#include "guard.h"
#include "numeric.h"
#include "target.h"

/* Zero fields take the default in the comment. */
typedef struct conv_spec {
    uint32_t act, weight_type; /* GDN_F32 */
    uint32_t channels, width;  /* width: 4 */
    uint32_t nk, nv, dim;      /* set: conv_fused, and channels follows */
    uint32_t extra;            /* columns beyond the window */
    uint32_t batch;            /* 1 */
    const uint32_t *len;       /* NULL: uniform, rows each */
    uint32_t rows, row0, tail, offsets;
    uint32_t x_pad, out_pad;
    uint64_t slot_pad;
    const int32_t *slots; /* NULL with no_slots: sequence b uses slot b; else scattered */
    bool no_slots, no_state, bias, no_silu, keep;
    const uint8_t *fresh;
    const int32_t *accepted;
    uint32_t num_slots, flags;
    uint64_t seed;
} conv_spec;

typedef struct conv_case {
    conv_spec s;
    gdn_conv_shape shape;
    uint32_t *start;
    int32_t *slot;
    uint32_t buffer_rows, x_stride, out_stride, state_len;
    uint64_t slot_stride;
    guard x, weight, bias, state, slots, fresh, accepted, cu, out[3]; /* out[0]; fused: q, k, v */
    gdn_hplan *plan;
} conv_case;

void conv_make(conv_case *c, const conv_spec *s);
void conv_free(conv_case *c);
gdn_status conv_launch(conv_case *c, uint32_t first, uint32_t n);
double conv_x(const conv_case *c, uint32_t row, uint32_t channel);
/* Index of an element of the state buffer. */
uint64_t conv_at(const conv_case *c, uint32_t slot, uint32_t channel, uint32_t column);
/* Output element; fused: channel of the packed row. */
double conv_out(const conv_case *c, uint32_t row, uint32_t channel);

/* What the contract wants: y [rows of all sequences][channels], and the whole state buffer. */
typedef struct conv_expect {
    double *y;
    guard state;
} conv_expect;
conv_expect conv_expect_of(const conv_case *c);
void conv_expect_free(conv_expect *e);
bool conv_matches(const conv_case *c, const conv_expect *e, char *why, uint32_t cap);
void conv_poison(const conv_case *c); /* outputs */

void conv_check(conv_case *c); /* leaves the new states */
void conv_run(const conv_spec *s);

#endif
