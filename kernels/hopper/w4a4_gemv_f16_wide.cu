/* w4a4_gemv_f16_wide.cu - NVFP4 x NVFP4 projection of up to 64 rows where there are no FP4 tensor cores: as w4a4_gemv_f16.cu, with the
 * products of a warpgroup, shared evenly by all multiprocessors. Contract: abi/gdn_op_w4a4.h.
 *
 *     C[m][n] = bf16( acc * (Ag[m]*scale2) )
 *
 * A group of four warps has 64 weight rows, the product's A side: codes become f16 in registers, and come DEPTH - 1 pairs of chunks of
 * 128 k ahead by cp.async, a pair so that a row's 128 bytes are a whole line. The tokens are the B side: one or two more groups
 * (EXPANDERS) turn them into f16, a chunk at a time, in STAGES tiles of shared memory. Nobody waits for anybody else than through the
 * tiles' barriers.
 *
 * All pairs of all row tiles (64 rows a group of a block) are one line, row tile by row tile, and the b-th of `grid` blocks has the part from
 * units * b / grid to units * (b + 1) / grid. A block that ends inside a row tile does that piece first and hands its sums to the block
 * with the tile's last pair, through the workspace. Blocks are numbered as they begin, and wait for earlier ones only.
 *
 * Workspace: FLAGS words, the first one the number to give out, then one a block and group; a launch needs and leaves zeros there. Behind
 * them 256 * T bytes of sums a block and group, tokens T.
 *
 * Order: a sum over the chunks of a piece, ascending, in eight products each; the tile's last piece first, then the others, ascending. So the
 * results are those of w4a4_gemv_f16.cu but for the summation in f32, and the same sizes on the same grid give the same bytes.
 *
 * f16_16_wide, f16_32: one expander, 1 to 4 groups; f16_64: two, 1 to 3 groups. Block 128 * (groups + expanders), grid at most the
 * multiprocessors, the units, and (FLAGS - 1) / groups. Dynamic shared memory 1024 * T + 128 + 27648 * groups. Arguments: those of
 * w4a4_gemv_mx.cu, then the workspace, 16-byte aligned. */
#include "gdn_device.cuh"
#include "gdn_hopper.cuh"
#include "gdn_w4a4_f16.cuh"
#include "gdn_w4a4_sums.cuh"

namespace wide {
enum { AHEAD = 2, DEPTH = 3, STAGES = 4, WEIGHTS = 2304 /* of a warp and a pair: 2048 of codes, 256 of scales */ };
enum { FLAGS = 1024 /* words in front of the sums */ };
struct operands {
    const uint8_t *Aq, *As;
    const float *Ag;
    const uint8_t *Bq, *Bs;
    float scale2;
    gdn_bf16 *C;
    uint32_t M, N, K;
    uint32_t *workspace;
};
template <int TOKENS, int EXPANDERS> struct layout {
    static constexpr uint32_t SLOT = TOKENS * 256;
    uint8_t *smem;
    __device__ __forceinline__ uint8_t *tile(uint32_t step) const { return smem + step % STAGES * SLOT; }
    __device__ __forceinline__ gdn_mbarrier *bars() const { return reinterpret_cast<gdn_mbarrier *>(smem + STAGES * SLOT); }
    __device__ __forceinline__ gdn_mbarrier &full(uint32_t step) const { return bars()[step % STAGES]; }
    __device__ __forceinline__ gdn_mbarrier &empty(uint32_t step) const { return bars()[STAGES + step % STAGES]; }
    __device__ __forceinline__ uint8_t *weights(uint32_t warp) const { return smem + STAGES * SLOT + 128 + warp * (DEPTH * WEIGHTS); }
};

/* ---- what a block does: pairs of chunks, in its order ---- */
struct work {
    uint32_t block, pairs; /* pairs of k */
    uint32_t first, end;   /* of the line: this block's part */
    uint32_t piece, rest;  /* pairs of the last tile, handed over; of the first, whose end is here */
    bool whole;            /* tiles between */
    static __device__ __forceinline__ work of(uint32_t number, uint32_t K, uint32_t tiles) {
        work w = { number, (K / GDN_W4A4_CHUNK + 1) / 2, 0, 0, 0, 0, false };
        w.first = w.bound(number, tiles), w.end = w.bound(number + 1, tiles);
        const uint32_t n = w.end - w.first;
        w.piece = min(w.end % w.pairs, n);
        w.rest = min((w.pairs - w.first % w.pairs) % w.pairs, n - w.piece);
        w.whole = n > w.piece + w.rest;
        return w;
    }
    __device__ __forceinline__ uint32_t bound(uint32_t b, uint32_t tiles) const {
        return (uint32_t)((uint64_t)tiles * pairs * b / gridDim.x);
    }
};
/* Pairs of one row tile. A block's piece comes first, because another block waits for it, then whole tiles; what may have to wait for
 * others' pieces comes last. */
struct run {
    uint32_t tile, from, n; /* n 0: none */
    uint32_t pair, todo;    /* the next one, and how many */
    static __device__ __forceinline__ run at(uint32_t place, uint32_t n, const work &w) {
        return { place / w.pairs, place % w.pairs, n, place % w.pairs, n };
    }
    static __device__ __forceinline__ run of(const work &w) {
        if (w.piece) return at(w.end - w.piece, w.piece, w);
        return w.whole ? at(w.first + w.rest, w.pairs, w) : at(w.first, w.rest, w);
    }
    __device__ __forceinline__ run next(const work &w) const {
        const uint32_t here = tile * w.pairs + from, begin = w.first + w.rest;
        const uint32_t then = from + n < w.pairs || !w.whole ? begin : here + w.pairs; /* behind the piece, or a whole tile */
        if (here < begin) return at(here, 0, w);                                    /* behind the rest */
        return w.whole && then + w.pairs <= w.end - w.piece ? at(then, w.pairs, w) : at(w.first, w.rest, w);
    }
    __device__ __forceinline__ void step() {
        todo--, pair++;
    }
};

/* ---- tokens: codes in shared memory to f16 in a tile of gdn_wgmma.cuh ---- */
/* A thread's part of a block of eight tokens: word q of lanes 2p and 2p + 1 of token n's fragment. Product 2q + b has code b + 4e of that
 * word of lane t at place 2t + e, and code b + 1 + 4e at place 2t + 8 + e, as on the weights' side. */
template <int TOKENS> struct expander {
    const uint8_t *codes, *scales; /* of the first block of this thread: it has every second */
    uint32_t step, most;           /* blocks that are there, every second */
    uint32_t chunks, to, select;
    struct words {
        uint2 code[TOKENS / 16];
        uint32_t scale[TOKENS / 16];
    };
    static __device__ __forceinline__ expander of(const operands &o, uint32_t thread) {
        const uint32_t p = thread & 1, n = thread >> 1 & 7, q = thread >> 4 & 3, j = q >> 1, first = thread >> 6, chunks = o.K / GDN_W4A4_CHUNK;
        const uint32_t block = min(first, (o.M - 1) / GDN_W4A4_TOKENS);
        return { o.Aq + block * chunks * GDN_W4A4_CODE_BYTES + (4 * n + 2 * p + (q & 1)) * 16 + 8 * j,
                 o.As + block * chunks * GDN_W4A4_SCALE_BYTES + n * 8 + 4 * j,
                 2 * chunks,
                 ((o.M - 1) / GDN_W4A4_TOKENS - block) / 2,
                 chunks,
                 first * 1024 + j * (TOKENS * 128) + gdn_swizzle128(n * 128 + (q & 1) * 64) + 8 * p,
                 p ? 0x4431u : 0x4420u };
    }
    /* A chunk that is not there, the second of an odd number's last pair, is zeros on both sides. */
    __device__ __forceinline__ words load(uint32_t x) const {
        words w = {};
        GDN_UNROLL
        for (uint32_t k = 0; k < TOKENS / 16; k++) {
            const uint32_t at = x + min(k, most) * step;
            if (x >= chunks) break;
            w.code[k] = gdn_ld8_ro(codes + at * GDN_W4A4_CODE_BYTES);
            w.scale[k] = gdn_ld4_ro(scales + at * GDN_W4A4_SCALE_BYTES);
        }
        return w;
    }
    __device__ __forceinline__ void run(uint8_t *tile, const words &w) const {
        GDN_UNROLL
        for (uint32_t k = 0; k < TOKENS / 16; k++) {
            const uint32_t s = gdn_ue4m3_two(__byte_perm(w.scale[k], 0, select));
            uint32_t a[4], b[4];
            gdn_e2m1x8(w.code[k].x, a);
            gdn_e2m1x8(w.code[k].y, b);
            GDN_UNROLL
            for (uint32_t i = 0; i < 4; i++) /* the swizzle leaves bits 4 and 5 to us: they were 0 */
                gdn_st8(tile + (to ^ 16 * i) + k * 2048, uint2 { gdn_scale_f16x2(a[i], s, 0), gdn_scale_f16x2(b[i], s, 1) });
        }
    }
};

/* A group has every EXPANDERS-th chunk of each pair. Words come AHEAD pairs before, in registers: the fence waits for what is on its way,
 * copies to shared memory above all. */
template <int TOKENS, int EXPANDERS> GDN_DEVICE void expand(const operands &o, const layout<TOKENS, EXPANDERS> &at, const work &w) {
    constexpr uint32_t EACH = 2 / EXPANDERS;
    const uint32_t group = gdn_warp() / 4, steps = 2 * (w.end - w.first);
    const expander<TOKENS> mine = expander<TOKENS>::of(o, threadIdx.x % 128);
    typename expander<TOKENS>::words words[AHEAD][EACH];
    run of = run::of(w);
    auto fetch = [&](uint32_t k, uint32_t i) { /* the last of a pair goes on to the next */
        if (of.todo == 0) return;
        words[k][i] = mine.load(2 * of.pair + group + i * EXPANDERS);
        if (i + 1 < EACH) return;
        of.step();
        if (of.todo == 0) of = of.next(w);
    };
    GDN_UNROLL
    for (uint32_t k = 0; k < AHEAD * EACH; k++) fetch(k / EACH, k % EACH);
    gdn_bar_sync(1, blockDim.x); /* the weights are asked for behind the tokens, which would wait for them */
    GDN_NO_UNROLL
    for (uint32_t step = group; step < steps; step += 2) {
        GDN_UNROLL
        for (uint32_t i = 0; i < EACH; i++) {
            const uint32_t here = step + i * EXPANDERS;
            gdn_mbar_wait(at.empty(here), (here / STAGES & 1) ^ 1);
            mine.run(at.tile(here), words[0][i]);
            gdn_fence_async();
            gdn_mbar_arrive(at.full(here));
            GDN_UNROLL
            for (uint32_t k = 0; k + 1 < AHEAD; k++) words[k][i] = words[k + 1][i];
            fetch(AHEAD - 1, i);
        }
    }
}

/* ---- weights ---- */
/* A warp's sixteen rows of a row tile, a pair of chunks at a time: row r's 16 bytes q lie at 128 r + 16 (q ^ 4 (r % 2)), so that two
 * rows' halves fill a line of banks; scales, sixteen of a row, behind. Rows past N and a chunk that is not there are zeros. */
struct rows {
    const uint8_t *codes, *scales; /* of this lane */
    uint32_t limit;                /* rows of codes, every fourth from this lane's first on, that are there */
    bool scaled;
    static __device__ __forceinline__ rows of(const operands &o, uint32_t first) {
        const uint32_t lane = gdn_lane(), row = first + lane / 8, scale_row = first + lane / 2;
        return { o.Bq + (uint64_t)row * (o.K / 2) + lane % 8 * 16, o.Bs + (uint64_t)scale_row * (o.K / 16) + lane % 2 * 8,
                 row < o.N ? (o.N - row + 3) / 4 : 0, scale_row < o.N };
    }
    __device__ __forceinline__ void fetch(uint8_t *to, uint32_t K, uint32_t pair, uint32_t chunks) const {
        const uint32_t lane = gdn_lane();
        const bool two = 2 * pair + 1 < chunks;
        uint8_t *const place = to + ((lane / 8 * 128 + lane % 8 * 16) ^ (lane / 8 % 2 * 64));
        const uint32_t some = two || lane % 8 < 4 ? limit : 0;
        GDN_UNROLL
        for (uint32_t k = 0; k < 4; k++) gdn_cp_async16(place + k * 512, codes + pair * 128 + k * (K * 2), k < some ? 16 : 0);
        gdn_cp_async8(to + 2048 + lane * 8, scales + pair * 16, scaled && (two || lane % 2 == 0) ? 8 : 0);
    }
};
/* Products 4j..4j+3 of a chunk: block 2t + j of rows g and g + 8. */
GDN_DEVICE void decode(const uint2 (&w)[2], uint32_t j, const uint32_t (&scale)[2], uint32_t (&a)[16]) {
    GDN_UNROLL
    for (uint32_t k = 0; k < 4; k++) { /* row i, word q */
        const uint32_t i = k % 2, q = k / 2;
        uint32_t h[4];
        gdn_e2m1x8(q ? w[i].y : w[i].x, h);
        GDN_UNROLL
        for (uint32_t r = 0; r < 4; r++) a[8 * q + (r / 2) * 4 + (r % 2) * 2 + i] = gdn_scale_f16x2(h[r], scale[i], (int)j);
    }
}

/* ---- the end of a row tile or a piece ---- */
/* A group's 128 threads, `thread` of them. */
template <int R> struct sums {
    float *slots;
    uint32_t *flags;
    uint32_t block, groups, group, thread, barrier;
    __device__ __forceinline__ float *at(uint32_t b) const {
        return slots + ((uint64_t)(b * groups + group) * R * 128 + thread * 4);
    }
    __device__ __forceinline__ void hand_over(const float (&acc)[R]) const {
        float *const to = at(block);
        GDN_UNROLL
        for (uint32_t r = 0; r < R; r += 4) gdn_st16f(to + r * 128, float4 { acc[r], acc[r + 1], acc[r + 2], acc[r + 3] });
        gdn_bar_sync(barrier, 128);
        if (thread == 0) gdn_st_release(flags + block * groups + group, 1);
    }
    /* Behind the own sums those of block `from` and on, in order. */
    __device__ __forceinline__ void take(float (&acc)[R], uint32_t from) const {
        const uint32_t n = block - from;
        uint32_t *const flag = flags + (from + thread) * groups + group;
        if (thread < n) {
            gdn_wait_word(flag, 1);
            *flag = 0;
        }
        gdn_bar_sync(barrier, 128);
        GDN_NO_UNROLL
        for (uint32_t b = from; b < block; b++) {
            const float *const p = at(b);
            GDN_UNROLL
            for (uint32_t r = 0; r < R; r += 4) {
                const float4 v = gdn_ld16f(p + r * 128);
                acc[r] += v.x, acc[r + 1] += v.y, acc[r + 2] += v.z, acc[r + 3] += v.w;
            }
        }
    }
};
template <int R> GDN_DEVICE void store(const operands &o, const float (&acc)[R], uint32_t row0) {
    const uint32_t t = gdn_lane() % 4;
    GDN_UNROLL
    for (uint32_t r = 0; r < R; r++) {
        const uint32_t m = r / 4 * 8 + 2 * t + r % 2, n = row0 + r % 4 / 2 * 8;
        if (m < o.M && n < o.N) o.C[(uint64_t)m * o.N + n] = gdn_to_bf16(acc[r] * GDN_W4A4_F16_UNIT * (o.Ag[m] * o.scale2));
    }
}

template <int R>
GDN_DEVICE void finish(const operands &o, const work &w, const run &done, float (&acc)[R], uint32_t groups, uint32_t warp, uint32_t barrier) {
    const sums<R> shared = { reinterpret_cast<float *>(o.workspace + FLAGS), o.workspace + 1, w.block, groups, warp / 4, threadIdx.x % 128, barrier };
    const uint32_t tile_rows = groups * 64, start = done.tile * w.pairs, tiles = (o.N + tile_rows - 1) / tile_rows;
    if (done.from + done.n < w.pairs) {
        shared.hand_over(acc);
        return;
    }
    if (done.from) {
        uint32_t b = w.block;
        while (w.bound(b, tiles) > start) b--;
        shared.take(acc, b);
    }
    store(o, acc, done.tile * tile_rows + warp * 16 + gdn_lane() / 4);
}
template <int TOKENS, int EXPANDERS> GDN_DEVICE void multiply(const operands &o, const layout<TOKENS, EXPANDERS> &at, const work &w) {
    constexpr uint32_t R = TOKENS / 2;
    const uint32_t warp = gdn_warp() - 4 * EXPANDERS, lane = gdn_lane(), t = lane % 4, g = lane / 4;
    const uint32_t groups = blockDim.x / 128 - EXPANDERS, tile_rows = groups * 64, in_tile = warp * 16, chunks = o.K / GDN_W4A4_CHUNK;
    uint8_t *const mine = at.weights(warp);
    run now = run::of(w), ahead = now;
    rows from = rows::of(o, ahead.tile * tile_rows + in_tile);
    auto fetch = [&](uint32_t slot) {
        if (ahead.todo) {
            from.fetch(mine + slot * WEIGHTS, o.K, ahead.pair, chunks);
            ahead.step();
            if (ahead.todo == 0) {
                ahead = ahead.next(w);
                from = rows::of(o, ahead.tile * tile_rows + in_tile);
            }
        }
        gdn_cp_async_commit();
    };
    gdn_bar_sync(1, blockDim.x);
    uint32_t slot = 0, step = 0;
    GDN_UNROLL
    for (uint32_t d = 0; d + 1 < DEPTH; d++) fetch(d);
    GDN_NO_UNROLL
    for (; now.n; now = now.next(w)) {
        float acc[R];
        GDN_UNROLL
        for (uint32_t r = 0; r < R; r++) acc[r] = 0;
        GDN_NO_UNROLL
        for (uint32_t i = 0; i < now.n; i++) {
            gdn_sync_warp(); /* the slot that is filled next has been read */
            fetch(slot == 0 ? DEPTH - 1 : slot - 1);
            gdn_cp_async_wait<DEPTH - 1>();
            gdn_sync_warp();
            const uint8_t *const p = mine + slot * WEIGHTS;
            uint32_t a[16];
            GDN_UNROLL
            for (uint32_t half = 0; half < 2; half++) {
                uint32_t s[2];
                uint2 v[2][2];
                const gdn_tile_k tile = gdn_make_tile_k(at.tile(step + half));
                GDN_UNROLL
                for (uint32_t k = 0; k < 2; k++) {
                    const uint4 q = gdn_ld16(p + (((g + 8 * k) * 128 + half * 64 + t * 16) ^ (g % 2 * 64)));
                    v[0][k] = uint2 { q.x, q.y };
                    v[1][k] = uint2 { q.z, q.w };
                    s[k] = gdn_ue4m3_two(*reinterpret_cast<const uint16_t *>(p + 2048 + (g + 8 * k) * 16 + half * 8 + t * 2));
                }
                GDN_UNROLL
                for (uint32_t j = 0; j < 2; j++) {
                    decode(v[j], j, s, a);
                    if (j == 0) gdn_mbar_wait(at.full(step + half), (step + half) / STAGES & 1);
                    gdn_wgmma_fence();
                    GDN_UNROLL
                    for (uint32_t k = 0; k < 4; k++)
                        gdn_wgmma_f16(acc, gdn_quad(a, 4 * (int)k), gdn_move(tile, j * (TOKENS * 128) + k * 32), true);
                    gdn_wgmma_commit();
                    gdn_wgmma_wait<0>();
                    gdn_pin(acc);
                }
                if (lane == 0) gdn_mbar_arrive(at.empty(step + half));
            }
            step += 2;
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
        }
        finish<R>(o, w, now, acc, groups, warp, 2 + warp / 4);
    }
    gdn_cp_async_wait<0>();
}

template <int TOKENS, int EXPANDERS> GDN_DEVICE void project(const operands &o) {
    GDN_DYN_SMEM_ALIGNED(uint8_t, smem, 1024);
    const layout<TOKENS, EXPANDERS> at = { smem };
    const uint32_t tile_rows = (blockDim.x / 128 - EXPANDERS) * 64;
    uint32_t *const ticket = reinterpret_cast<uint32_t *>(at.bars() + 2 * STAGES);
    if (threadIdx.x == 0) {
        *ticket = gdn_atomic_add(o.workspace, 1);
        if (*ticket == gridDim.x - 1) o.workspace[0] = 0;
        for (uint32_t s = 0; s < STAGES; s++) {
            gdn_mbar_init(at.full(s), 128);
            gdn_mbar_init(at.empty(s), blockDim.x / 32 - 4 * EXPANDERS);
        }
        gdn_mbar_init_fence();
    }
    gdn_sync_block();
    const uint32_t block = *ticket;
    const work w = work::of(block, o.K, (o.N + tile_rows - 1) / tile_rows);
    if (gdn_warp() < 4 * EXPANDERS)
        expand(o, at, w);
    else
        multiply(o, at, w);
}
} // namespace wide

#define WIDE_(name, TOKENS, EXPANDERS, THREADS)                                                                                  \
    GDN_KERNEL(THREADS, 1)                                                                                                       \
    name(const uint8_t *Aq, const uint8_t *As, const float *Ag, const uint8_t *Bq, const uint8_t *Bs, float scale2, gdn_bf16 *C, \
         uint32_t M, uint32_t N, uint32_t K, uint32_t *workspace) {                                                              \
        gdn_begin();                                                                                                             \
        wide::project<TOKENS, EXPANDERS>(wide::operands { Aq, As, Ag, Bq, Bs, scale2, C, M, N, K, workspace });                  \
    }

WIDE_(w4a4_gemv_f16_16_wide, 16, 1, 640)
WIDE_(w4a4_gemv_f16_32, 32, 1, 640)
WIDE_(w4a4_gemv_f16_64, 64, 2, 640)
