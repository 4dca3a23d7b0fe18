/* gdn_check.h - what GDN_PLAN_CHECKED finds wrong, as the check kernel leaves it and the host words it (plugin/common/plan_checked.c).
 * Pure C. */
#ifndef GDN_CHECK_H
#define GDN_CHECK_H

#if defined(__CUDACC_RTC__) || defined(GDN_EMU)
#include "gdn_types.cuh"
#else
#include <stdint.h>
#endif

enum {
    GDN_BAD_NOTHING,
    GDN_BAD_OFFSET_FIRST, /* offsets[0] is value                                                    */
    GDN_BAD_OFFSET_BACK,  /* offsets[a] is value, offsets[a-1] is bound                             */
    GDN_BAD_OFFSET_EACH,  /* sequence a has value rows, more than bound                             */
    GDN_BAD_OFFSET_TOTAL, /* the offsets end at value, bound tokens behind their begin are possible */
    GDN_BAD_SLOT_IN,      /* slot value at a, of bound                                              */
    GDN_BAD_SLOT_OUT,     /* the same of the second list                                            */
    GDN_BAD_SAME_SLOT,    /* a and b write slot value                                               */
    GDN_BAD_READ_SLOT,    /* a reads slot value, which b writes                                     */
    GDN_BAD_GATE,         /* row a, head b: value has the float's bits; bound 1: log decays         */
    GDN_BAD_ACCEPTED,     /* accepted[a] is value, above bound or negative                          */
    GDN_BAD_KEPT_ROWS,    /* sequence a has value rows to keep, room for bound                      */
    GDN_BAD_ID,           /* seq_ids[a] is value, outside 0 .. bound - 1                            */
    GDN_BAD_SAME_ID,      /* a and b have the same number, value                                    */
    GDN_BAD_RECORD,       /* sequence a's word is value, which no verify writes                     */
    GDN_BAD_NO_STASH,     /* there is none; bound 1: and sequence a was deferred, 0: and the flag is engaged */
    GDN_BAD_NO_HI,        /* there are none; sequence a accepted value of bound rows                */
    GDN_BAD_NO_KEPT,      /* sequence a, by its record, accepted value kept rows; bound: room for so many, 0: no hi */
    GDN_BAD_HI_ENTRY      /* the table of hi has no state for sequence a after row value */
};

/* Device memory, zero before the first launch; the first thread that finds something fills it. */
typedef struct gdn_check_report {
    uint32_t kind, a, b, pad;
    int64_t value, bound;
} gdn_check_report;

/* Pairs of sequences that the kernel compares. */
enum { GDN_CHECK_SAME_SLOT = 1, GDN_CHECK_READ_SLOT = 2 };
enum { GDN_CHECK_HAS_STASH = 1, GDN_CHECK_HAS_HI = 2 };
enum { GDN_CHECK_BLOCK = 256, GDN_CHECK_BLOCKS = 128 };

#endif
