/* norm.c - gated RMS norm over rows, grouped by heads. Contract: abi/gdn_op_norm.h; one row: isa/norm_row.c. */
#include "norm_row.h"

void gdn_cpu_gated_rmsnorm(const gdn_cpu_norm *c) {
    static const struct gdn__norm_table *const table[GDN_CPU_ISAS] = { &gdn__norm_table_base, &gdn__norm_table_avx2,
                                                                       &gdn__norm_table_avx512 };
    const struct gdn__norm_table *const t = table[c->isa];
    const uint64_t size = c->f32 ? sizeof(float) : sizeof(uint16_t), dim = c->dim;
#pragma omp parallel for schedule(static) if ((uint64_t)c->rows * c->dim > 16384)
    for (uint32_t r = 0; r < c->rows; r++) {
        const uint64_t group = r / c->heads, head = r % c->heads;
        t->row(c, (const char *)c->x + (group * c->x_stride + head * dim) * size,
               (const char *)c->z + (group * c->z_stride + head * dim) * size, (char *)c->out + r * dim * size);
    }
}
