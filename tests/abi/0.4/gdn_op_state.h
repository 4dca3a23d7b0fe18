/* gdn_op_state.h - copy and zero states by slot lists (prefix caches, forks, preemption), for SSM and conv states alike.
 *
 * A negative slot in either list skips that pair. No slot may be written twice in one launch, nor be source and
 * destination of different pairs (GDN_PLAN_CHECKED verifies it). */
#ifndef GDN_OP_STATE_H
#define GDN_OP_STATE_H

#include "gdn_ops.h"

typedef struct gdn_state_shape {
    gdn_shape base;      /* act_type is not looked at                            */
    uint64_t bytes;      /* bytes of one state, copied or zeroed                 */
    uint64_t src_stride; /* bytes from slot to slot of the source; 0 = bytes. state_zero looks at neither src_stride nor src_slots */
    uint64_t dst_stride; /* the same for the destination                         */
    uint64_t src_slots;  /* slots that exist, for GDN_PLAN_CHECKED; 0 = unknown  */
    uint64_t dst_slots;
    uint32_t max_count; /* pairs of a launch                                    */
    uint32_t pad_;      /* must be 0                                            */
} gdn_state_shape;

#define GDN_STATE_COPY_PTRS(X)                          \
    X(GDN_STATE_COPY_P_SRC, "src", GDN_REQ)             \
    X(GDN_STATE_COPY_P_DST, "dst", GDN_REQ)             \
    X(GDN_STATE_COPY_P_SRC_SLOTS, "src_slots", GDN_REQ) \
    X(GDN_STATE_COPY_P_DST_SLOTS, "dst_slots", GDN_REQ)
#define GDN_STATE_COPY_U32S(X) X(GDN_STATE_COPY_U_COUNT, "count", GDN_REQ)
enum { GDN_STATE_COPY_PTRS(GDN_ORDER_) GDN_STATE_COPY_N_PTR };
enum { GDN_STATE_COPY_U32S(GDN_ORDER_) GDN_STATE_COPY_N_U32 };

#define GDN_STATE_ZERO_PTRS(X)              \
    X(GDN_STATE_ZERO_P_DST, "dst", GDN_REQ) \
    X(GDN_STATE_ZERO_P_DST_SLOTS, "dst_slots", GDN_REQ)
#define GDN_STATE_ZERO_U32S(X) X(GDN_STATE_ZERO_U_COUNT, "count", GDN_REQ)
enum { GDN_STATE_ZERO_PTRS(GDN_ORDER_) GDN_STATE_ZERO_N_PTR };
enum { GDN_STATE_ZERO_U32S(GDN_ORDER_) GDN_STATE_ZERO_N_U32 };

#endif
