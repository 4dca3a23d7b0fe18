/* norm_row.h - between norm.c (rows, threads) and isa/norm_row.c (one row). */
#ifndef GDN_CPU_NORM_ROW_H
#define GDN_CPU_NORM_ROW_H

#include "cpu_kernels.h"

struct gdn__norm_table {
    /* out may be x. c: dim, w, eps, types and activation. */
    void (*row)(const gdn_cpu_norm *c, const void *x, const void *z, void *out);
};
extern const struct gdn__norm_table gdn__norm_table_base, gdn__norm_table_avx2, gdn__norm_table_avx512;

#endif
