/* ssm_ba_gates_tc.cu - dense_gemm_ba_gates_prefill_tc: the BA projection on tensor cores (wgmma, bf16 operands, f32 accumulators).
 *
 *     r[m][n] = sum_k A[m][k] B[n][k], then the gates of gdn_gates.cuh          arguments and output row: ssm_preprocess.cu's parent
 *
 * Compiled for one width: -DGDN_BA_TC_COLUMNS=32|64|96|128 >= N; rows of B from N on count as zero. K % 64 == 0, rows of A and B
 * 16-byte aligned. Grid GDN_BA_TC_GRID(M, columns), block GDN_BA_TC_BLOCK, dynamic shared memory GDN_BA_TC_SMEM(columns), all in
 * gdn_geometry.h. A cluster of GDN_BA_TC_SPLIT blocks has 128 rows (64 when there are 128 columns) and each block a part of K:
 * A is read once and B once per row block, whatever the split. Two warpgroups, 64 rows each (at 128 columns: 64 columns each).
 *
 * Accuracy. The tensor core cuts off low bits at each step instead of rounding, always towards zero, so its sums are kept short:
 * CHUNK = 32 of k, then an ordinary addition; every FOLD pairs of stages that sum goes into a compensated one (hi + lo, next to no
 * rounding lost; lo has no registers left and lives in shared memory); the parts of K are added in the order of their ranks,
 * compensated as well; the gates take the precise forms of gdn_gates.cuh. Deterministic. Not the parent's bytes: the order of
 * additions is another one; measured against f64 the error is the smaller one. Two chunks are in flight: one is added up while the
 * tensor core works on the other.
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
enum {
    COLUMNS = GDN_BA_TC_COLUMNS,
    ROWS = GDN_BA_TC_ROWS(GDN_BA_TC_COLUMNS),
    SPLIT = GDN_BA_TC_SPLIT,
    STAGES = GDN_BA_TC_STAGES,
    PAIR = 2, /* stages between two barriers */
    FOLD = 2, /* pairs */
    THREADS = GDN_BA_TC_BLOCK,
    STEP = 64,                                          /* of k, a stage: one panel */
    CHUNK = 32,                                         /* of k, inside the tensor core; two in a stage */
    GROUP_COLUMNS = ROWS == 64 ? COLUMNS / 2 : COLUMNS, /* of a warpgroup */
    REGS = GROUP_COLUMNS / 2,
    STAGE_BYTES = (ROWS + COLUMNS) * 128,
    SHARE = (ROWS + SPLIT - 1) / SPLIT,                      /* rows that a block finishes, at most */
    QUADS = (SHARE * (COLUMNS / 4) + THREADS - 1) / THREADS, /* of four columns, a thread at the end */
    PITCH = COLUMNS + 8,                                     /* floats of a row of partial sums: fragment stores meet no bank twice */
};
static_assert(COLUMNS == 32 || COLUMNS == 64 || COLUMNS == 96 || COLUMNS == 128, "columns");
static_assert(STAGES % PAIR == 0 && STAGES >= 2 * PAIR, "pairs");
static_assert((ROWS * PITCH + 2 * SHARE * COLUMNS) * 4 <= STAGES * STAGE_BYTES, "the partial sums take the place of the stages");
typedef gdn_cluster<SPLIT, THREADS, GDN_BA_TC_SMEM(GDN_BA_TC_COLUMNS)> cluster;

/* ---- operands: ROWS rows of A, then COLUMNS rows of B, 128 bytes each, in 128-byte swizzle ---- */
/* What a thread copies of a stage: 16-byte unit t % 8 of rows t / 8, t / 8 + 32, ... */
struct source {
    const gdn_bf16 *a, *b;
    uint64_t a_stride, b_stride; /* elements from one of its rows to the next */
    uint32_t a_rows, b_rows;     /* of these exist */
    uint32_t place;
};
GDN_DEVICE uint32_t rows_from(uint32_t first, uint32_t end) { /* first, first + 32, ... below end */
    return first < end ? (end - first + 31) / 32 : 0;
}
GDN_DEVICE source make_source(const gdn_bf16 *A, const gdn_bf16 *B, uint32_t row0, uint32_t k0, uint32_t M, uint32_t N, uint32_t K,
                              uint32_t K_stride) {
    const uint32_t t = cluster::thread(), row = t / 8, unit = t % 8;
    source s;
    s.a_rows = rows_from(row0 + row, M);
    s.b_rows = rows_from(row, N);
    s.a = A + (s.a_rows ? (uint64_t)(row0 + row) * K_stride : 0) + k0 + unit * 8;
    s.b = B + (s.b_rows ? (uint64_t)row * K : 0) + k0 + unit * 8;
    s.a_stride = (uint64_t)32 * K_stride;
    s.b_stride = (uint64_t)32 * K;
    s.place = gdn_swizzle128(row * 128 + unit * 16);
    return s;
}
/* Without data the stage becomes zeros. */
GDN_DEVICE void load_stage(const source &s, unsigned char *stage, uint32_t k, bool data) {
    GDN_UNROLL
    for (uint32_t i = 0; i < ROWS / 32; i++) {
        const bool there = data && i < s.a_rows;
        gdn_cp_async16(stage + s.place + i * 4096, s.a + (there ? i * s.a_stride + k : 0), there ? 16 : 0);
    }
    GDN_UNROLL
    for (uint32_t i = 0; i < COLUMNS / 32; i++) {
        const bool there = data && i < s.b_rows;
        gdn_cp_async16(stage + ROWS * 128 + s.place + i * 4096, s.b + (there ? i * s.b_stride + k : 0), there ? 16 : 0);
    }
}

/* ---- sums ---- */
struct sums {
    float even[REGS], odd[REGS]; /* the chunks in flight */
    float plain[REGS], hi[REGS];
};
/* hi + lo += x; what hi rounds away goes to lo, but for the least bits while |x| > |hi|. */
GDN_DEVICE void compensate(float &hi, float &lo, float x) {
    const float s = hi + x;
    lo += x - (s - hi);
    hi = s;
}
/* A thread's lo: REGS / 4 pieces of 16 bytes, THREADS pieces apart. */
GDN_DEVICE void fold(sums &s, float *lo) {
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i += 4) {
        float4 l = gdn_ld16f(lo + i * THREADS);
        compensate(s.hi[i], l.x, s.plain[i]);
        compensate(s.hi[i + 1], l.y, s.plain[i + 1]);
        compensate(s.hi[i + 2], l.z, s.plain[i + 2]);
        compensate(s.hi[i + 3], l.w, s.plain[i + 3]);
        gdn_st16f(lo + i * THREADS, l);
        s.plain[i] = s.plain[i + 1] = s.plain[i + 2] = s.plain[i + 3] = 0.0f;
    }
}
GDN_DEVICE void multiply_chunk(float (&d)[REGS], gdn_tile_k a, gdn_tile_k b, uint32_t at) {
    gdn_wgmma_fence();
    GDN_UNROLL
    for (uint32_t i = 0; i < CHUNK * 2; i += 32) gdn_wgmma_bf16(d, gdn_move(a, at + i), gdn_move(b, at + i), i != 0);
    gdn_wgmma_commit();
}
/* The chunk has been waited for. */
GDN_DEVICE void add_chunk(sums &s, float (&chunk)[REGS]) {
    gdn_pin(chunk);
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i++) s.plain[i] += chunk[i];
}
/* All products begun and waited for in here: ptxas serialises what is in flight across a loop's back edge. */
GDN_DEVICE void multiply_pair(sums &s, const unsigned char *stage, uint32_t a, uint32_t b) {
    GDN_UNROLL
    for (uint32_t i = 0; i < PAIR; i++) {
        const unsigned char *const here = stage + i * STAGE_BYTES;
        multiply_chunk(s.even, gdn_make_tile_k(here + a), gdn_make_tile_k(here + b), 0);
        if (i) {
            gdn_wgmma_wait<1>();
            add_chunk(s, s.odd);
        }
        multiply_chunk(s.odd, gdn_make_tile_k(here + a), gdn_make_tile_k(here + b), CHUNK * 2);
        gdn_wgmma_wait<1>();
        add_chunk(s, s.even);
    }
    gdn_wgmma_wait<0>();
    add_chunk(s, s.odd);
}

/* ---- end: partial sums to shared memory, the cluster adds them, each block finishes its share of the rows ---- */
GDN_DEVICE void store_part(const sums &s, const float *lo, float *part, uint32_t row, uint32_t column) {
    const uint32_t lane = gdn_lane();
    float *const at = part + (row + lane / 4) * PITCH + column + lane % 4 * 2;
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i += 4) {
        const float4 l = gdn_ld16f(lo + i * THREADS);
        float *const p = at + i * 2;
        *reinterpret_cast<float2 *>(p) = float2 { s.hi[i] + l.x, s.hi[i + 1] + l.y };
        *reinterpret_cast<float2 *>(p + 8 * PITCH) = float2 { s.hi[i + 2] + l.z, s.hi[i + 3] + l.w };
    }
}
/* This block's share of the cluster's rows: the parts in the order of their ranks, hi to `sum`, what it rounds away to `low`. All
 * loads are under way before the first is used. */
GDN_DEVICE void add_parts(const float *part, float *sum, float *low, uint32_t first) {
    float4 v[QUADS][SPLIT];
    GDN_UNROLL
    for (uint32_t q = 0; q < QUADS; q++) {
        const uint32_t i = cluster::thread() + q * THREADS, row = first + i / (COLUMNS / 4), n = i % (COLUMNS / 4) * 4;
        GDN_UNROLL
        for (uint32_t r = 0; r < SPLIT; r++) v[q][r] = row < ROWS ? cluster::load(part + row * PITCH + n, r) : float4 { 0, 0, 0, 0 };
    }
    GDN_UNROLL
    for (uint32_t q = 0; q < QUADS; q++) {
        const uint32_t i = cluster::thread() + q * THREADS;
        float hi[4] = { 0, 0, 0, 0 }, lo[4] = { 0, 0, 0, 0 };
        GDN_UNROLL
        for (uint32_t r = 0; r < SPLIT; r++) {
            compensate(hi[0], lo[0], v[q][r].x);
            compensate(hi[1], lo[1], v[q][r].y);
            compensate(hi[2], lo[2], v[q][r].z);
            compensate(hi[3], lo[3], v[q][r].w);
        }
        if (i >= SHARE * (COLUMNS / 4)) break;
        gdn_st16f(sum + i * 4, float4 { hi[0], hi[1], hi[2], hi[3] });
        gdn_st16f(low + i * 4, float4 { lo[0], lo[1], lo[2], lo[3] });
    }
}
/* A warp has a row at a time, a lane its heads: all do the same thing, and what belongs to a head is worked out once. */
GDN_DEVICE void finish(const float *sum, const float *low, uint32_t warp, uint32_t rows, uint32_t vpg, uint32_t nv, uint32_t gate_stride,
                       const float *A_log, const float *dt_bias, float *out) {
    for (uint32_t head = gdn_lane(); head < nv; head += 32) {
        const uint32_t b = head / vpg * 2 * vpg + head % vpg, g = b + vpg;
        const float rate = gdn_gate_rate(A_log[head]), dt = dt_bias[head];
        for (uint32_t row = warp; row < rows; row += THREADS / 32) {
            float *const o = out + (uint64_t)row * gate_stride + head;
            o[nv] = gdn_beta_precise(sum[row * COLUMNS + b], low[row * COLUMNS + b]);
            o[0] = gdn_gate_precise(sum[row * COLUMNS + g] + low[row * COLUMNS + g], rate, dt);
        }
    }
}

GDN_KERNEL(THREADS, 1)
GDN_CLUSTER_DIMS(SPLIT)
dense_gemm_ba_gates_prefill_tc(const gdn_bf16 *A, const gdn_bf16 *B, const float *A_log, const float *dt_bias, float *gate_out, uint32_t M,
                               uint32_t N, uint32_t K, uint32_t K_stride, uint32_t gate_stride, uint32_t nv, uint32_t vheads_per_group) {
    GDN_DYN_SMEM_ALIGNED(unsigned char, dynamic, 1024);
    unsigned char *const stages = cluster::memory(dynamic);
    const uint32_t rank = cluster::rank(), all = K / STEP, first = all * rank / SPLIT, steps = all * (rank + 1) / SPLIT - first;
    const uint32_t row0 = cluster::index() * ROWS, warp = gdn_warp() % (THREADS / 32), group = warp / 4;
    const uint32_t group_row = ROWS == 64 ? 0 : group * 64, group_column = ROWS == 64 ? group * GROUP_COLUMNS : 0;
    const source from = make_source(A, B, row0, first * STEP, M, N, K, K_stride);
    float *const lo = reinterpret_cast<float *>(stages + STAGES * STAGE_BYTES) + cluster::thread() * 4;
    sums s;
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i++) s.plain[i] = s.hi[i] = 0.0f;
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i += 4) gdn_st16f(lo + i * THREADS, float4 { 0, 0, 0, 0 });

    for (uint32_t i = 0; i < STAGES - PAIR; i++) {
        load_stage(from, stages + i * STAGE_BYTES, i * STEP, i < steps);
        if (i % PAIR == PAIR - 1) gdn_cp_async_commit();
    }
    uint32_t here = 0, next = STAGES - PAIR;
    GDN_NO_UNROLL
    for (uint32_t i = 0; i < steps; i += PAIR) { /* stages past the last one are zeros */
        gdn_cp_async_wait<STAGES / PAIR - 2>();
        gdn_fence_async();     /* wgmma reads what cp.async wrote */
        cluster::sync_block(); /* this pair has landed, and nobody reads the one before it any more */
        for (uint32_t j = i + STAGES - PAIR; j < i + STAGES; j++, next++)
            load_stage(from, stages + next * STAGE_BYTES, j * STEP, j < steps);
        gdn_cp_async_commit();
        if (next == STAGES) next = 0;
        multiply_pair(s, stages + here * STAGE_BYTES, group_row * 128, (ROWS + group_column) * 128);
        here = here + PAIR == STAGES ? 0 : here + PAIR;
        if (i / PAIR % FOLD == FOLD - 1) fold(s, lo);
    }
    fold(s, lo);

    gdn_cp_async_wait<0>();
    cluster::sync_block(); /* the last stage has been read: its place is free */
    float *const part = reinterpret_cast<float *>(stages);
    const uint32_t share = ROWS * rank / SPLIT, end = ROWS * (rank + 1) / SPLIT, left = row0 < M ? M - row0 : 0,
                   there = left < ROWS ? left : (uint32_t)ROWS;
    const uint32_t rows = share < there ? (end < there ? end : there) - share : 0;
    float *const sum = part + ROWS * PITCH, *const low = sum + SHARE * COLUMNS; /* behind what the neighbours read */
    store_part(s, lo, part, group_row + warp % 4 * 16, group_column);
    cluster::sync();
    add_parts(part, sum, low, share);
    cluster::sync_block();
    finish(sum, low, warp, rows, vheads_per_group ? vheads_per_group : nv, nv, gate_stride, A_log, dt_bias,
           gate_out + (uint64_t)(row0 + share) * gate_stride);
    cluster::leave();
}
