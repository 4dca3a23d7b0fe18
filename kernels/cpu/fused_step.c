/* fused_step.c - the fused decode step as what it is made of, over the whole batch: convolution, gates, decode, gated norm. Contract:
 * abi/gdn_op_step.h. So its bytes are theirs by construction, and the GPU kernels' one launch has something to be compared with. */
#include "cpu_kernels.h"

#include <string.h>

/* A padding row is zero, whatever its z holds: the norm would make NaN of a zero times one. */
static void zero_padding(const gdn_cpu_step *c) {
    const size_t row = (size_t)c->norm.heads * c->norm.dim * (c->norm.f32 ? sizeof(float) : sizeof(uint16_t));
    for (uint32_t b = 0; b < c->rule.batch; b++)
        if (c->conv.slots && c->conv.slots[b] < 0) memset((char *)c->norm.out + b * row, 0, row);
}

void gdn_cpu_fused_step(const gdn_cpu_step *c) {
    gdn_cpu_conv_fused(&c->conv);
    if (!c->made) gdn_cpu_gates_rows(&c->gates);
    gdn_cpu_decode(&c->rule);
    gdn_cpu_gated_rmsnorm(&c->norm);
    zero_padding(c);
}
