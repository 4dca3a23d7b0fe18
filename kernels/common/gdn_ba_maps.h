/* gdn_ba_maps.h - who computes what in the BA gates kernels: pure index arithmetic, the same text for C, C++ and device code.
 *
 * A block of GDN_BA_BLOCK threads is GDN_BA_OUTPUTS outputs ("lo") of GDN_BA_LANES lanes. Output n of a row is the dot product of
 * an activation row with row n of B; lane l takes the 16-byte vectors l, l + 64, ... of it. */
#ifndef GDN_BA_MAPS_H
#define GDN_BA_MAPS_H

#define GDN_BA_BLOCK   256u
#define GDN_BA_LANES   64u
#define GDN_BA_OUTPUTS 4u
#define GDN_BA_WARPS   8u
#define GDN_BA_VECTOR  8u /* bf16 elements in 16 bytes */
#define GDN_BA_GROUPS  8u /* of 4 outputs, a thread of the twin */

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define GDN_BA_MAP static __host__ __device__ __forceinline__
#else
#define GDN_BA_MAP static inline
#endif

/* What column n of B becomes. */
typedef struct gdn_ba_slot {
    unsigned head;
    unsigned is_beta; /* else the gate */
} gdn_ba_slot;
typedef struct gdn_ba_pair {
    unsigned even, odd;
} gdn_ba_pair;

/* The step-th vector of a lane, while it is below K / 8. Over the 64 lanes: each vector of the row once. */
GDN_BA_MAP unsigned gdn_ba_lane_kv(unsigned lane, unsigned step) {
    return lane + GDN_BA_LANES * step;
}
/* Column of output lo of a group. */
GDN_BA_MAP unsigned gdn_ba_output(unsigned group, unsigned lo) {
    return group * GDN_BA_OUTPUTS + lo;
}
/* Warp that holds a lane of output lo, and the two whose sums make the output (even first). */
GDN_BA_MAP unsigned gdn_ba_warp(unsigned lo, unsigned lane) {
    return 2u * lo + lane / 32u;
}
GDN_BA_MAP gdn_ba_pair gdn_ba_warp_pair(unsigned lo) {
    gdn_ba_pair pair;
    pair.even = 2u * lo;
    pair.odd = 2u * lo + 1u;
    return pair;
}
/* Per key head vpg rows of b, then vpg rows of a. vpg is at least 1; vpg = nv: all b, then all a. */
GDN_BA_MAP gdn_ba_slot gdn_ba_slot_of(unsigned n, unsigned vpg) {
    const unsigned w = n % (2u * vpg), first = n / (2u * vpg) * vpg;
    gdn_ba_slot slot;
    slot.is_beta = w < vpg;
    slot.head = first + (slot.is_beta ? w : w - vpg);
    return slot;
}
/* Where a slot lies in an output row [gate nv | beta nv]. */
GDN_BA_MAP unsigned gdn_ba_place(gdn_ba_slot slot, unsigned nv) {
    return slot.is_beta ? nv + slot.head : slot.head;
}

#endif
