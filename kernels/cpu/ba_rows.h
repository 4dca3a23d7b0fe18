/* ba_rows.h - between ba_gates.c (tiles, gates, threads) and isa/ba_rows.c (the dot products of a tile). */
#ifndef GDN_CPU_BA_ROWS_H
#define GDN_CPU_BA_ROWS_H

#include "cpu_kernels.h"

enum { GDN__BA_ROWS = 8, GDN__BA_COLUMNS = 8, GDN__BA_LANES = 64, GDN__BA_VECTOR = 8 };

struct gdn__ba_table {
    /* r[m - m0][n - n0] = sum_k A[m][k] B[n][k], in the contract's order. */
    void (*dots)(const gdn_cpu_ba *c, uint32_t m0, uint32_t rows, uint32_t n0, uint32_t columns, float r[GDN__BA_ROWS][GDN__BA_COLUMNS]);
};
extern const struct gdn__ba_table gdn__ba_table_base, gdn__ba_table_avx2, gdn__ba_table_avx512;

#endif
