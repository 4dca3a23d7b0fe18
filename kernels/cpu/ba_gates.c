/* ba_gates.c - the b/a projection and its gates: tiles of rows and columns, one dot product an output, then gates_math.h.
 * Contract: abi/gdn_op_gates.h. The order of the reduction, which fixes its bytes: isa/ba_rows.c. */
#include "ba_rows.h"
#include "gates_math.h"

/* Column n belongs to a head, as beta or as the source of its gate. */
static uint32_t head_of(const gdn_cpu_ba *c, uint32_t n, bool *beta) {
    const uint32_t vpg = c->vpg ? c->vpg : c->nv, w = n % (2 * vpg), group = n / (2 * vpg);
    *beta = w < vpg;
    return group * vpg + (*beta ? w : w - vpg);
}

static void tile(const gdn_cpu_ba *c, uint32_t m0, uint32_t n0) {
    static const struct gdn__ba_table *const table[GDN_CPU_ISAS] = { &gdn__ba_table_base, &gdn__ba_table_avx2, &gdn__ba_table_avx512 };
    const uint32_t rows = c->M - m0 < GDN__BA_ROWS ? c->M - m0 : GDN__BA_ROWS;
    const uint32_t columns = c->N - n0 < GDN__BA_COLUMNS ? c->N - n0 : GDN__BA_COLUMNS;
    float r[GDN__BA_ROWS][GDN__BA_COLUMNS];
    table[c->isa]->dots(c, m0, rows, n0, columns, r);
    for (uint32_t n = 0; n < columns; n++) {
        bool beta;
        const uint32_t h = head_of(c, n0 + n, &beta);
        const double rate = beta ? 0 : gdn__gate_rate(c->A_log[h]);
        for (uint32_t m = 0; m < rows; m++) {
            const uint64_t at = (uint64_t)(m0 + m) * c->gate_stride + h;
            if (beta)
                c->beta[at] = gdn__beta(r[m][n]);
            else
                c->gate[at] = (float)exp(gdn__gate_log(rate, r[m][n], c->dt_bias[h]));
        }
    }
}

void gdn_cpu_ba_gates(const gdn_cpu_ba *c) {
    const uint64_t across = ((uint64_t)c->N + GDN__BA_COLUMNS - 1) / GDN__BA_COLUMNS,
                   down = ((uint64_t)c->M + GDN__BA_ROWS - 1) / GDN__BA_ROWS;
#pragma omp parallel for schedule(static) if ((uint64_t)c->M * c->N * c->K > 65536)
    for (uint64_t t = 0; t < across * down; t++) tile(c, (uint32_t)(t / across * GDN__BA_ROWS), (uint32_t)(t % across * GDN__BA_COLUMNS));
}
