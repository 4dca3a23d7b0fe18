/* conv_rows.h - between conv.c (sequences, states, threads) and isa/conv_rows.c (the arithmetic of some rows and channels). */
#ifndef GDN_CPU_CONV_ROWS_H
#define GDN_CPU_CONV_ROWS_H

#include "cpu_kernels.h"

enum {
    GDN__CONV_BLOCK = 512,  /* channels of a unit; also the largest head that conv_fused can normalise */
    GDN__CONV_TOKENS = 128, /* tokens of a unit; not below GDN_CONV_MAX_WIDTH                          */
    GDN__CONV_TAPS = 8      /* GDN_CONV_MAX_WIDTH                                                      */
};

/* `rows` consecutive tokens of one sequence, `nc` channels. Pointers are at the first row and channel. */
typedef struct gdn__conv_rows {
    const void *x, *weight, *bias; /* bias may be NULL                                              */
    void *out;
    const float (*window)[GDN__CONV_BLOCK]; /* the width-1 rows before the first one, oldest first            */
    uint64_t rows, x_stride, out_stride;
    uint32_t nc, width, head; /* head: divide each `head` channels by their L2 norm; 0: do not  */
    bool f32, weight_f32, silu;
} gdn__conv_rows;

struct gdn__conv_table {
    void (*rows)(const gdn__conv_rows *r);
};
extern const struct gdn__conv_table gdn__conv_table_base, gdn__conv_table_avx2, gdn__conv_table_avx512;

#endif
