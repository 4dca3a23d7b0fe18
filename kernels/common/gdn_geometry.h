/* gdn_geometry.h - launch geometry that a kernel and the host that launches it must agree on. Only #defines: included by C, by
 * C++ and by device code. Block sizes are one-dimensional; every grid here uses x alone; grids are 64-bit values below 2^31.
 *
 * Convolution. A lane of a block has eight channels, a block GDN_CONV_BLOCK lanes and one tile: up to GDN_CONV_TOKENS tokens of
 * one sequence. Block i takes lane block i % n and tile i / n, n = ceil(lanes / GDN_CONV_BLOCK). A sequence of L tokens needs
 * max(1, ceil(L / GDN_CONV_TOKENS)) tiles, at most floor(tokens / GDN_CONV_TOKENS) + batch all together, whatever the lengths
 * are: `tokens` is an upper bound of all rows of the launch (uniform: batch * seq_len). Blocks without a tile return.
 *   causal_conv1d           lanes = GDN_CONV1D_LANES(channels)
 *   conv_silu_split_l2norm  lanes = GDN_CONV_FUSED_LANES(nk, k_dim, nv, v_dim); k_dim at most GDN_CONV_MAX_HEAD
 * Gated RMS norm: grid GDN_NORM_GRID(rows, dim), block GDN_NORM_BLOCK.
 * BA gates on tensor cores: a row block of GDN_BA_TC_ROWS rows is GDN_BA_TC_SPLIT neighbouring blocks (a cluster, by the kernel's own
 * attribute), each with a part of K; grid GDN_BA_TC_GRID(M), block GDN_BA_TC_BLOCK, dynamic shared memory GDN_BA_TC_SMEM(columns);
 * columns = 32, 64, 96 or 128, at least N. An H200 holds 39 clusters of 3 blocks at once; M = 4576 needs 36.
 * Fused decode step: grid (nv/nk, nk, batch), block GDN_DSTEP_BLOCK or GDN_DSTEP_WIDE; flags GDN_DSTEP_*.
 * State copy and zero: grid GDN_STATE_GRID(count, bytes), block GDN_STATE_BLOCK; nothing to launch when that is 0. */
#ifndef GDN_GEOMETRY_H
#define GDN_GEOMETRY_H

#define GDN__CEIL_DIV(a, b) ((a) / (b) + ((a) % (b) != 0))

#define GDN_CONV_BLOCK 128
#ifndef GDN_CONV_TOKENS
#define GDN_CONV_TOKENS 16
#endif
#define GDN_CONV_MAX_HEAD 256
/* Lanes of a normalised head: a power of two, so that a head never lies in two warps. */
#define GDN_CONV_HEAD_LANES(k_dim) \
    ((k_dim) <= 8 ? 1u : (k_dim) <= 16 ? 2u : (k_dim) <= 32 ? 4u : (k_dim) <= 64 ? 8u : (k_dim) <= 128 ? 16u : 32u)
#define GDN_CONV1D_LANES(channels)                 GDN__CEIL_DIV(channels, 8u)
#define GDN_CONV_FUSED_LANES(nk, k_dim, nv, v_dim) (2u * (nk)*GDN_CONV_HEAD_LANES(k_dim) + GDN__CEIL_DIV((nv) * (v_dim), 8u))
#define GDN_CONV_GRID(tokens, batch, lanes)        (((tokens) / GDN_CONV_TOKENS + 0ull + (batch)) * GDN__CEIL_DIV(lanes, GDN_CONV_BLOCK))

#define GDN_NORM_BLOCK 256
#ifndef GDN_NORM_DEPTH
#define GDN_NORM_DEPTH 4 /* rows in flight of a group of lanes */
#endif
/* Lanes of a row: dim / 8 when that is a power of two up to a warp, else a whole warp. */
#define GDN_NORM_SPLITS(dim)     ((dim) % 8 == 0 && (dim) >= 8 && (dim) <= 256 && (((dim) / 8) & ((dim) / 8 - 1)) == 0)
#define GDN_NORM_LANES(dim)      (GDN_NORM_SPLITS(dim) ? (dim) / 8 : 32u)
#define GDN_NORM_ROWS(dim)       (GDN_NORM_BLOCK / GDN_NORM_LANES(dim) * (GDN_NORM_SPLITS(dim) ? GDN_NORM_DEPTH : 1u))
#define GDN_NORM_GRID(rows, dim) (GDN__CEIL_DIV(rows, GDN_NORM_ROWS(dim)) + 0ull)

#define GDN_DSTEP_BLOCK      256
#define GDN_DSTEP_WIDE       512
#define GDN_DSTEP_WEIGHT_F32 1u  /* conv weight and bias are f32, not bf16          */
#define GDN_DSTEP_NORM_F32   2u  /* the norm's weight is f32                        */
#define GDN_DSTEP_SIGMOID    4u  /* the norm's gate is sigmoid(z), not z*sigmoid(z) */
#define GDN_DSTEP_TILED      8u  /* key head of value head h: h % nk                */
#define GDN_DSTEP_GATES_MADE 16u /* a and b hold the f32 decay and beta             */
#define GDN_DSTEP_AHEAD      32u /* gdn_decode_step: the state comes to the last cache while the convolution runs */

#define GDN_STATE_BLOCK              256
#define GDN_STATE_BYTES              32768 /* of one state, a block */
#define GDN_STATE_GRID(count, bytes) ((count) * (GDN__CEIL_DIV(bytes, GDN_STATE_BYTES) + 0ull))

#define GDN_BA_TC_BLOCK 256
#define GDN_BA_TC_ROWS  128
#ifndef GDN_BA_TC_SPLIT
#define GDN_BA_TC_SPLIT 3
#endif
#ifndef GDN_BA_TC_STAGES
#define GDN_BA_TC_STAGES(columns) ((columns) == 128 ? 4u : 6u)
#endif
#define GDN_BA_TC_SHARE GDN__CEIL_DIV(GDN_BA_TC_ROWS, GDN_BA_TC_SPLIT) /* rows that a block finishes, at most */
/* Stages, the parts of a block's share, what belongs to a head; the whole a multiple of 1024. */
#define GDN_BA_TC_SMEM(columns)                                        \
    (GDN_BA_TC_STAGES(columns) * (GDN_BA_TC_ROWS + (columns)) * 128u + \
     GDN__CEIL_DIV(GDN_BA_TC_SPLIT * GDN_BA_TC_SHARE * (columns)*4u + (columns)*6u, 1024u) * 1024u)
#define GDN_BA_TC_GRID(M) (GDN__CEIL_DIV(M, GDN_BA_TC_ROWS) * (GDN_BA_TC_SPLIT + 0ull))

#endif
