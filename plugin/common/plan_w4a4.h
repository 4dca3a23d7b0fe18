/* plan_w4a4.h - which entry a W4A4 projection takes, from sizes and levers alone. Contract: abi/gdn_op_w4a4.h.
 * Every entry gives the same bytes, so this decides speed only. Pure.
 *
 * Tile entries: a block owns `rows` weight rows (1, 2 or 4 tiles of sixteen), all k; grid ceil(N / rows). Persistent entries: one
 * block a multiprocessor pulls tiles of sixteen rows from a counter, with the first `sst` chunks of each warp's k staged in
 * shared memory for all column blocks of eight tokens. */
#ifndef GDN_PLAN_W4A4_H
#define GDN_PLAN_W4A4_H

#include <stdbool.h>
#include <stdint.h>

enum {
    GDN__W4A4_BLOCK_THREADS = 256,   /* eight warps                                           */
    GDN__W4A4_PS_SMEM_MAX = 101376,  /* GB10's opt-in limit, applied on every device          */
    GDN__W4A4_PS_SMEM_MOST = 100352, /* what the largest stripes that fit ask for: 1 KiB is left for static shared memory */
    GDN__W4A4_PS_MIN_TILES_PER_SM = 8,
    GDN__W4A4_PS_MAX_M = 32,
    GDN__W4A4_PS_SLOT_BYTES = 576,      /* a chunk of eight tokens: 512 of codes, 64 of scales */
    GDN__W4A4_PS_REDUCTION_BYTES = 8192 /* two blocks of 4096                                 */
};

/* X(ID, entry, column blocks, tiles a block, persistent) */
#define GDN__W4A4_MX_MAP(X)                    \
    X(MX8, "w4a4_gemv_mx8", 1, 1, 0)           \
    X(MX16, "w4a4_gemv_mx16", 2, 1, 0)         \
    X(MX16_NT2, "w4a4_gemv_mx16_nt2", 2, 2, 0) \
    X(MX32, "w4a4_gemv_mx32", 4, 1, 0)         \
    X(MX32_NT4, "w4a4_gemv_mx32_nt4", 4, 4, 0) \
    X(MX64, "w4a4_gemv_mx64", 8, 1, 0)         \
    X(MX64_NT2, "w4a4_gemv_mx64_nt2", 8, 2, 0) \
    X(MX16_PS, "w4a4_gemv_mx16_ps", 2, 1, 1)   \
    X(MX32_PS, "w4a4_gemv_mx32_ps", 4, 1, 1)
#define GDN__W4A4_ENUM_(ID, ...) GDN__W4A4_##ID,
enum { GDN__W4A4_MX_MAP(GDN__W4A4_ENUM_) GDN__W4A4_MX_ENTRIES };
#undef GDN__W4A4_ENUM_

typedef struct gdn__w4a4_route {
    uint32_t entry; /* GDN__W4A4_MX8, ...                    */
    uint32_t rows;  /* weight rows a block; _ps: of a tile   */
    uint32_t grid;  /* 0: nothing to launch                  */
    uint32_t block;
    uint32_t sst, smem; /* _ps: staged chunks a warp, and bytes of dynamic shared memory */
    uint64_t workspace; /* bytes, of the wide entries */
} gdn__w4a4_route;

/* Without FP4 tensor cores (hopper): X(ID, entry, column blocks, expanders, most groups). The first two: blocks of three groups of eight
 * warps that stay, each with the first sst chunks of each warp's k as f16 in shared memory. The others, for more rows and for k whose
 * chunks do not all fit there: groups of four warps with 64 rows each, beside those that expand the tokens; blocks that stay have equal
 * shares of all rows and k. */
enum {
    GDN__W4A4_F16_SMEM_MAX = 232448, /* of a block on 9.0 */
    GDN__W4A4_F16_SLOT_BYTES = 2048, /* a chunk of eight tokens */
    GDN__W4A4_F16_SMS = 132,         /* when nobody can say */
    GDN__W4A4_F16_GROUPS = 3,
    GDN__W4A4_WIDE_ROWS = 64,
    GDN__W4A4_WIDE_FLAGS = 1024 /* words in front of the workspace */
};
#define GDN__W4A4_F16_MAP(X)                         \
    X(F16_8, "w4a4_gemv_f16_8", 1, 0, 0)             \
    X(F16_16, "w4a4_gemv_f16_16", 2, 0, 0)           \
    X(F16_16_WIDE, "w4a4_gemv_f16_16_wide", 2, 1, 4) \
    X(F16_32, "w4a4_gemv_f16_32", 4, 1, 4)           \
    X(F16_64, "w4a4_gemv_f16_64", 8, 2, 3)
#define GDN__W4A4_ENUM_(ID, ...) GDN__W4A4_##ID,
enum { GDN__W4A4_F16_MAP(GDN__W4A4_ENUM_) GDN__W4A4_F16_ENTRIES };
#undef GDN__W4A4_ENUM_
gdn__w4a4_route gdn__w4a4_f16_plan(uint32_t m, uint32_t n, uint32_t k, uint32_t sms);

uint32_t gdn__w4a4_ps_column_blocks(uint32_t m);
uint64_t gdn__w4a4_ps_smem_bytes(uint32_t column_blocks, uint32_t sst);
uint32_t gdn__w4a4_ps_stripe_chunks(uint32_t k);
/* Of the tile entries. nt: the lever w4a4_mx_nt. */
gdn__w4a4_route gdn__w4a4_mx_pick(uint32_t m, uint32_t n, uint32_t nt);
/* Of all. ps: the lever w4a4_mx_ps; sms 0: not known, so nothing is persistent. m = 0: done, grid 0. */
gdn__w4a4_route gdn__w4a4_mx_plan(uint32_t m, uint32_t n, uint32_t k, uint32_t nt, bool ps, uint32_t sms);

#endif
