/* gdn_op_norm.h - gated RMS norm, one row a (token, value head).
 *
 *     out = x * rsqrt(mean(x^2) + eps) * w * act(z)        act = SiLU (z*sigmoid(z)) or sigmoid; w plain, not 1 + w
 *
 * f32 inside. Rows come in groups of `heads`: row r = t*heads + h is at x + t*x_stride + h*dim and z + t*z_stride + h*dim,
 * so that z may be a column view of a wider projection. out is dense, row r at r*dim. In place (out == x) is allowed for dense x. */
#ifndef GDN_OP_NORM_H
#define GDN_OP_NORM_H

#include "gdn_ops.h"

enum { GDN_NORM_SILU = 1, GDN_NORM_SIGMOID = 2 };

typedef struct gdn_norm_shape {
    gdn_shape base;
    uint32_t dim;
    uint32_t heads;       /* rows that share one stride step; 0 = 1                       */
    uint32_t x_stride;    /* elements from group to group; 0 = heads*dim                  */
    uint32_t z_stride;    /* the same for z                                               */
    uint32_t act;         /* GDN_NORM_SILU or GDN_NORM_SIGMOID; anything else is refused  */
    uint32_t weight_type; /* of w: GDN_BF16 or GDN_F32                                    */
    uint32_t max_rows;
    float eps; /* as in the checkpoint (1e-6); must be > 0                     */
} gdn_norm_shape;
#define GDN_NORM_PTRS(X)          \
    X(GDN_NORM_P_X, "x", GDN_REQ) \
    X(GDN_NORM_P_Z, "z", GDN_REQ) \
    X(GDN_NORM_P_W, "w", GDN_REQ) \
    X(GDN_NORM_P_OUT, "out", GDN_REQ)
#define GDN_NORM_U32S(X) X(GDN_NORM_U_ROWS, "rows", GDN_REQ)
enum { GDN_NORM_PTRS(GDN_ORDER_) GDN_NORM_N_PTR };
enum { GDN_NORM_U32S(GDN_ORDER_) GDN_NORM_N_U32 };

#endif
