/* ssm_ba_gates_tc.cu - dense_gemm_ba_gates_prefill_tc: the BA projection on tensor cores (wgmma, bf16 operands, f32 accumulators).
 *
 *     r[m][n] = sum_k A[m][k] B[n][k], then the gates of gdn_gates.cuh          arguments and output row: ssm_preprocess.cu's parent
 *
 * Compiled for one width: -DGDN_BA_TC_COLUMNS=32|64|96|128 >= N; rows of B from N on count as zero. K % 64 == 0, rows of A and B
 * 16-byte aligned. Grid GDN_BA_TC_GRID(M), block GDN_BA_TC_BLOCK, dynamic shared memory GDN_BA_TC_SMEM(columns), all in
 * gdn_geometry.h. A cluster of GDN_BA_TC_SPLIT blocks has 128 rows, each block a part of K; A is read once, B once a cluster. Two
 * warpgroups, 64 rows and all columns each.
 *
 * Accuracy. The tensor core cuts off low bits at each step of 16 of k instead of rounding, always towards zero, so its sums are kept
 * short: STEP = 64 of k, then an ordinary addition; every FOLD stages that sum goes into a compensated one (hi + lo, next to no
 * rounding lost); the parts of K are added in the order of their ranks, compensated as well; the gates take the precise forms of
 * gdn_gates.cuh. Deterministic. Not the parent's bytes: the order of additions is another one; measured against f64 the error is the
 * smaller one. Additions cost more time here than products or loads: each of `hi` takes four.
 *
 * Against the parent and its Hopper twin: the rows meet in shared memory instead of in each warp, which turns about 96 passes over
 * A into one, and the arithmetic goes to the tensor cores. */
#include "gdn_ba_maps.h"
#include "gdn_cluster.cuh"
#include "gdn_gates.cuh"
#include "gdn_geometry.h"
#include "gdn_hopper.cuh"
#include "gdn_wgmma_n96.cuh"

#ifndef GDN_BA_TC_COLUMNS
#define GDN_BA_TC_COLUMNS 96
#endif
#ifndef GDN_BA_TC_FOLD
#define GDN_BA_TC_FOLD (GDN_BA_TC_COLUMNS == 128 ? 1 : 3) /* 1: no registers for `plain` */
#endif
enum {
    COLUMNS = GDN_BA_TC_COLUMNS,
    ROWS = GDN_BA_TC_ROWS,
    THREADS = GDN_BA_TC_BLOCK,
    SHARE = GDN_BA_TC_SHARE,
    BYTES = GDN_BA_TC_SMEM(GDN_BA_TC_COLUMNS),
    SPLIT = GDN_BA_TC_SPLIT,
    STAGES = GDN_BA_TC_STAGES(GDN_BA_TC_COLUMNS),
    FOLD = GDN_BA_TC_FOLD,
    AHEAD = 3, /* outputs of a thread, side by side */
    STEP = 64, /* of k, a stage: one panel */
    REGS = COLUMNS / 2,
    STAGE_BYTES = (ROWS + COLUMNS) * 128,
    COPY_ROWS = THREADS / 8, /* one unit of 16 bytes a thread */
    PART = SHARE * COLUMNS,  /* floats of a block's rows, from one part of K */
    MAX_HEADS = COLUMNS / 2
};
static_assert(COLUMNS == 32 || COLUMNS == 64 || COLUMNS == 96 || COLUMNS == 128, "columns");
static_assert(ROWS % COPY_ROWS == 0 && COLUMNS % COPY_ROWS == 0 && COPY_ROWS % 8 == 0, "a thread's rows have one place in the swizzle");
static_assert(STAGES >= 3 && SHARE * (SPLIT - 1) < ROWS && BYTES % 1024 == 0, "stages, shares, alignment of the emulator's blocks");
typedef gdn_cluster<SPLIT, THREADS, BYTES> cluster;

/* Shared memory: STAGES stages; SPLIT parts of SHARE rows, from each block of the cluster; what belongs to a head. */
struct heads {
    float rate[MAX_HEADS], dt[MAX_HEADS];
    uint32_t column[MAX_HEADS]; /* of beta */
};
static_assert(STAGES * STAGE_BYTES + SPLIT * PART * 4 + sizeof(heads) <= BYTES, "GDN_BA_TC_SMEM");

/* ---- operands: ROWS rows of A, then COLUMNS rows of B, 128 bytes each, in 128-byte swizzle ---- */
/* What a thread copies of a stage: 16-byte unit t % 8 of rows t / 8, t / 8 + COPY_ROWS, ... */
struct source {
    const gdn_bf16 *a, *b;
    uint64_t a_stride, b_stride; /* elements from one of its rows to the next */
    uint32_t a_rows, b_rows;     /* of these exist */
    uint32_t place;
};
GDN_DEVICE uint32_t rows_from(uint32_t first, uint32_t end) { /* first, first + COPY_ROWS, ... below end */
    return first < end ? (end - first + COPY_ROWS - 1) / COPY_ROWS : 0;
}
GDN_DEVICE source make_source(const gdn_bf16 *A, const gdn_bf16 *B, uint32_t row0, uint32_t k0, uint32_t M, uint32_t N, uint32_t K,
                              uint32_t K_stride) {
    const uint32_t t = cluster::thread(), row = t / 8, unit = t % 8;
    source s;
    s.a_rows = rows_from(row0 + row, M);
    s.b_rows = rows_from(row, N);
    s.a = A + (s.a_rows ? (uint64_t)(row0 + row) * K_stride : 0) + k0 + unit * 8;
    s.b = B + (s.b_rows ? (uint64_t)row * K : 0) + k0 + unit * 8;
    s.a_stride = (uint64_t)COPY_ROWS * K_stride;
    s.b_stride = (uint64_t)COPY_ROWS * K;
    s.place = gdn_swizzle128(row * 128 + unit * 16);
    return s;
}
/* Rows that do not exist become zeros. */
GDN_DEVICE void load_stage(const source &s, unsigned char *stage, uint32_t k) {
    GDN_UNROLL
    for (uint32_t i = 0; i < ROWS / COPY_ROWS; i++) {
        const bool there = i < s.a_rows;
        gdn_cp_async16(stage + s.place + i * COPY_ROWS * 128, s.a + (there ? i * s.a_stride : 0) + k, there ? 16 : 0);
    }
    GDN_UNROLL
    for (uint32_t i = 0; i < COLUMNS / COPY_ROWS; i++) {
        const bool there = i < s.b_rows;
        gdn_cp_async16(stage + ROWS * 128 + s.place + i * COPY_ROWS * 128, s.b + (there ? i * s.b_stride : 0) + k, there ? 16 : 0);
    }
}

/* ---- sums ---- */
struct sums {
    float chunk[REGS], plain[REGS], hi[REGS], lo[REGS];
};
/* hi + lo += x; what hi rounds away goes to lo, but for the least bits while |x| > |hi|. */
GDN_DEVICE void compensate(float &hi, float &lo, float x) {
    const float s = hi + x;
    lo += x - (s - hi);
    hi = s;
}
GDN_DEVICE void multiply(float (&d)[REGS], const unsigned char *a, const unsigned char *b) {
    const gdn_tile_k ta = gdn_make_tile_k(a), tb = gdn_make_tile_k(b);
    gdn_wgmma_fence();
    GDN_UNROLL
    for (uint32_t i = 0; i < STEP * 2; i += 32) gdn_wgmma_bf16(d, gdn_move(ta, i), gdn_move(tb, i), i != 0);
    gdn_wgmma_commit();
}
GDN_DEVICE void add(sums &s) {
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i++)
        if (FOLD == 1)
            compensate(s.hi[i], s.lo[i], s.chunk[i]);
        else
            s.plain[i] += s.chunk[i];
}
GDN_DEVICE void fold(sums &s) {
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS && FOLD > 1; i++) {
        compensate(s.hi[i], s.lo[i], s.plain[i]);
        s.plain[i] = 0.0f;
    }
}

/* ---- end: each block gets all parts of its share of the rows, adds them and finishes ---- */
/* Rows `row` and row + 8 of a thread's fragment. Two lanes swap halves of two column groups, so that each stores 16 bytes. */
GDN_DEVICE void send(const sums &s, float *part, uint32_t row, uint32_t rank) {
    const uint32_t t = gdn_lane() % 4, odd = t & 1, low = row, high = row + 8;
    const cluster::remote to[2] = { cluster::in(part + rank * PART + low % SHARE * COLUMNS, low / SHARE),
                                    cluster::in(part + rank * PART + high % SHARE * COLUMNS, high / SHARE) };
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i += 8) {
        GDN_UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t a = i + half * 2, b = a + 4; /* a: columns i * 2 + 2 t, b: the same 8 further */
            const float2 x = { s.hi[a] + s.lo[a], s.hi[a + 1] + s.lo[a + 1] }, y = { s.hi[b] + s.lo[b], s.hi[b + 1] + s.lo[b + 1] };
            const float2 other = { __shfl_xor_sync(GDN_FULL_MASK, odd ? x.x : y.x, 1), __shfl_xor_sync(GDN_FULL_MASK, odd ? x.y : y.y, 1) };
            const float4 v = odd ? float4 { other.x, other.y, y.x, y.y } : float4 { x.x, x.y, other.x, other.y };
            cluster::store(to[half], i * 2 + odd * 8 + t / 2 * 4, v);
        }
    }
}
/* A thread has a head of a row at a time, AHEAD of them side by side. */
GDN_DEVICE void finish(const float *part, const heads &h, uint32_t rows, uint32_t vpg, uint32_t nv, uint32_t gate_stride, float *out) {
    const uint32_t t = cluster::thread(), step_rows = THREADS / nv, step_heads = THREADS % nv;
    for (uint32_t row = t / nv, head = t % nv; row < rows;) {
        float *to[AHEAD];
        float beta[AHEAD], gate[AHEAD];
        GDN_UNROLL
        for (uint32_t i = 0; i < AHEAD; i++) {
            const bool there = row < rows;
            const float *const p = part + (there ? row * COLUMNS : 0) + h.column[head];
            float b = p[0], b_low = 0.0f, g = p[vpg], g_low = 0.0f;
            GDN_UNROLL
            for (uint32_t r = 1; r < SPLIT; r++) {
                compensate(b, b_low, p[r * PART]);
                compensate(g, g_low, p[r * PART + vpg]);
            }
            to[i] = there ? out + (uint64_t)row * gate_stride + head : nullptr;
            beta[i] = gdn_beta_precise(b, b_low);
            gate[i] = gdn_gate_precise(g + g_low, h.rate[head], h.dt[head]);
            row += step_rows;
            head += step_heads;
            if (head >= nv) head -= nv, row++;
        }
        GDN_UNROLL
        for (uint32_t i = 0; i < AHEAD; i++)
            if (to[i]) {
                to[i][0] = gate[i];
                to[i][nv] = beta[i];
            }
    }
}

GDN_KERNEL(THREADS, 1)
GDN_CLUSTER_DIMS(SPLIT)
dense_gemm_ba_gates_prefill_tc(const gdn_bf16 *A, const gdn_bf16 *B, const float *A_log, const float *dt_bias, float *gate_out, uint32_t M,
                               uint32_t N, uint32_t K, uint32_t K_stride, uint32_t gate_stride, uint32_t nv, uint32_t vheads_per_group) {
    gdn_begin();
    GDN_DYN_SMEM_ALIGNED(unsigned char, dynamic, 1024);
    unsigned char *const stages = cluster::memory(dynamic);
    float *const part = reinterpret_cast<float *>(stages + STAGES * STAGE_BYTES);
    heads &h = *reinterpret_cast<heads *>(part + SPLIT * PART);
    const uint32_t rank = cluster::rank(), all = K / STEP, first = all * rank / SPLIT, steps = all * (rank + 1) / SPLIT - first;
    const uint32_t row0 = cluster::index() * ROWS, warp = gdn_warp() % (THREADS / 32), group = warp / 4,
                   vpg = vheads_per_group ? vheads_per_group : nv;
    const source from = make_source(A, B, row0, first * STEP, M, N, K, K_stride);
    cluster::enter();
    for (uint32_t i = 0; i < STAGES - 1; i++) {
        if (i < steps) load_stage(from, stages + i * STAGE_BYTES, i * STEP);
        gdn_cp_async_commit();
    }
    if (const uint32_t head = cluster::thread(); head < nv) {
        h.rate[head] = gdn_gate_rate(A_log[head]);
        h.dt[head] = dt_bias[head];
        h.column[head] = head / vpg * 2 * vpg + head % vpg;
    }
    sums s;
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i++) s.plain[i] = s.hi[i] = s.lo[i] = 0.0f;
    uint32_t here = 0, free = STAGES - 1;
    GDN_NO_UNROLL
    for (uint32_t i = 0; i < steps; i++) {
        gdn_cp_async_wait<STAGES - 2>();
        gdn_fence_async();     /* wgmma reads what cp.async wrote */
        cluster::sync_block(); /* this stage has landed, and nobody reads the one before it any more */
        const unsigned char *const stage = stages + here * STAGE_BYTES;
        const bool more = i + STAGES - 1 < steps;
        if (more && group) load_stage(from, stages + free * STAGE_BYTES, (i + STAGES - 1) * STEP);
        multiply(s.chunk, stage + group * 8192, stage + ROWS * 128);
        if (more && !group) load_stage(from, stages + free * STAGE_BYTES, (i + STAGES - 1) * STEP); /* the groups take turns */
        gdn_cp_async_commit();
        here = here + 1 == STAGES ? 0 : here + 1;
        free = free + 1 == STAGES ? 0 : free + 1;
        gdn_wgmma_wait<0>(); /* ptxas serialises what is in flight across a loop's back edge */
        gdn_pin(s.chunk);
        add(s);
        if (i % FOLD == FOLD - 1) fold(s);
    }
    fold(s);

    cluster::entered();
    send(s, part, warp * 16 + gdn_lane() / 4, rank);
    cluster::sync();
    const uint32_t share = rank * SHARE, left = row0 + share < M ? M - row0 - share : 0, own = ROWS - share;
    const uint32_t most = own < SHARE ? own : (uint32_t)SHARE;
    finish(part, h, left < most ? left : most, vpg, nv, gate_stride, gate_out + (uint64_t)(row0 + share) * gate_stride);
}
