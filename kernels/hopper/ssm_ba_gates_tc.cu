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
 * CHUNK = 32 of k, then an ordinary addition; every FOLD stages that sum goes into a compensated one (hi + lo, no rounding lost);
 * the parts of K are added in the order of their ranks, compensated as well; the gates take the ordinary exp and log. Deterministic. Not
 * the parent's bytes: the order of additions is another one; measured against f64 the error is the smaller one.
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
/* What accuracy and barriers cost, each measurable alone; the defaults are what the tests grade. */
#ifndef GDN_BA_TC_CHUNK
#define GDN_BA_TC_CHUNK 32 /* of k, inside the tensor core: 16, 32 or 64 */
#endif
#ifndef GDN_BA_TC_FOLD
#define GDN_BA_TC_FOLD 4 /* stages of ordinary additions */
#endif
#ifndef GDN_BA_TC_GROUP
#define GDN_BA_TC_GROUP 1 /* stages between two barriers; at least two groups make the ring */
#endif
#ifndef GDN_BA_TC_PRECISE
#define GDN_BA_TC_PRECISE 1 /* 0: the parent's fast intrinsics */
#endif

enum {
    COLUMNS = GDN_BA_TC_COLUMNS,
    ROWS = GDN_BA_TC_ROWS(GDN_BA_TC_COLUMNS),
    SPLIT = GDN_BA_TC_SPLIT,
    STAGES = GDN_BA_TC_STAGES,
    THREADS = GDN_BA_TC_BLOCK,
    STEP = 64, /* of k, a stage: one panel */
    CHUNK = GDN_BA_TC_CHUNK,
    FOLD = GDN_BA_TC_FOLD,
    GROUP = GDN_BA_TC_GROUP,
    GROUP_COLUMNS = ROWS == 64 ? COLUMNS / 2 : COLUMNS, /* of a warpgroup */
    REGS = GROUP_COLUMNS / 2,
    PRECISE = GDN_BA_TC_PRECISE,
    STAGE_BYTES = (ROWS + COLUMNS) * 128,
    PITCH = COLUMNS + 8, /* floats of a row of partial sums: fragment stores meet no bank twice */
};
static_assert(COLUMNS == 32 || COLUMNS == 64 || COLUMNS == 96 || COLUMNS == 128, "columns");
static_assert(STAGES % GROUP == 0 && STAGES >= 2 * GROUP, "groups");
static_assert(ROWS * PITCH * 4 <= STAGES * STAGE_BYTES, "the partial sums take the place of the stages");
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
GDN_DEVICE void load_stage(const source &s, unsigned char *stage, uint32_t k) {
    GDN_UNROLL
    for (uint32_t i = 0; i < ROWS / 32; i++) {
        const bool there = i < s.a_rows;
        gdn_cp_async16(stage + s.place + i * 4096, s.a + (there ? i * s.a_stride : 0) + k, there ? 16 : 0);
    }
    GDN_UNROLL
    for (uint32_t i = 0; i < COLUMNS / 32; i++) {
        const bool there = i < s.b_rows;
        gdn_cp_async16(stage + ROWS * 128 + s.place + i * 4096, s.b + (there ? i * s.b_stride : 0) + k, there ? 16 : 0);
    }
}

/* ---- sums ---- */
struct sums {
    float chunk[REGS], plain[REGS], hi[REGS], lo[REGS];
};
/* hi + lo += x; what hi rounds away goes to lo. */
GDN_DEVICE void compensate(float &hi, float &lo, float x) {
    const float s = hi + x, t = s - hi;
    lo += (hi - (s - t)) + (x - t);
    hi = s;
}
GDN_DEVICE void fold(sums &s) {
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i++) {
        compensate(s.hi[i], s.lo[i], s.plain[i]);
        s.plain[i] = 0.0f;
    }
}
GDN_DEVICE void multiply_stage(sums &s, gdn_tile_k a, gdn_tile_k b) {
    GDN_UNROLL
    for (uint32_t at = 0; at < STEP * 2; at += CHUNK * 2) {
        gdn_wgmma_fence();
        GDN_UNROLL
        for (uint32_t i = 0; i < CHUNK * 2; i += 32) gdn_wgmma_bf16(s.chunk, gdn_move(a, at + i), gdn_move(b, at + i), i != 0);
        gdn_wgmma_commit();
        gdn_wgmma_wait<0>();
        gdn_pin(s.chunk);
        GDN_UNROLL
        for (uint32_t i = 0; i < REGS; i++) s.plain[i] += s.chunk[i];
    }
}

/* ---- end: partial sums to shared memory, the cluster adds them, each block finishes its share of the rows ---- */
GDN_DEVICE void store_part(const sums &s, float *part, uint32_t row, uint32_t column) {
    const uint32_t lane = gdn_lane();
    float *const at = part + (row + lane / 4) * PITCH + column + lane % 4 * 2;
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i += 4) {
        float *const p = at + i * 2;
        *reinterpret_cast<float2 *>(p) = float2 { s.hi[i] + s.lo[i], s.hi[i + 1] + s.lo[i + 1] };
        *reinterpret_cast<float2 *>(p + 8 * PITCH) = float2 { s.hi[i + 2] + s.lo[i + 2], s.hi[i + 3] + s.lo[i + 3] };
    }
}
GDN_DEVICE float4 add_parts(const float *part) {
    float hi[4] = { 0, 0, 0, 0 }, lo[4] = { 0, 0, 0, 0 };
    GDN_UNROLL
    for (uint32_t r = 0; r < SPLIT; r++) {
        const float4 v = cluster::load(part, r);
        compensate(hi[0], lo[0], v.x);
        compensate(hi[1], lo[1], v.y);
        compensate(hi[2], lo[2], v.z);
        compensate(hi[3], lo[3], v.w);
    }
    return float4 { hi[0] + lo[0], hi[1] + lo[1], hi[2] + lo[2], hi[3] + lo[3] };
}
GDN_DEVICE void finish(const float *part, uint32_t row0, uint32_t M, uint32_t N, uint32_t vpg, uint32_t nv, uint32_t gate_stride,
                       const float *A_log, const float *dt_bias, float *out) {
    const uint32_t rank = cluster::rank(), first = ROWS * rank / SPLIT, end = ROWS * (rank + 1) / SPLIT;
    for (uint32_t i = cluster::thread(); i < (end - first) * (COLUMNS / 4); i += THREADS) {
        const uint32_t row = first + i / (COLUMNS / 4), n = i % (COLUMNS / 4) * 4;
        if (row0 >= M || row >= M - row0 || n >= N) continue;
        const float4 sum = add_parts(part + row * PITCH + n);
        const float r[4] = { sum.x, sum.y, sum.z, sum.w };
        float *const o = out + (uint64_t)(row0 + row) * gate_stride;
        GDN_UNROLL
        for (uint32_t j = 0; j < 4; j++)
            if (n + j < N) gdn_store_gate<PRECISE>(o, o + nv, r[j], n + j, vpg, A_log, dt_bias);
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
    sums s;
    GDN_UNROLL
    for (uint32_t i = 0; i < REGS; i++) s.plain[i] = s.hi[i] = s.lo[i] = 0.0f;

    for (uint32_t i = 0; i < STAGES - GROUP; i++) {
        if (i < steps) load_stage(from, stages + i * STAGE_BYTES, i * STEP);
        if (i % GROUP == GROUP - 1) gdn_cp_async_commit();
    }
    uint32_t here = 0, next = STAGES - GROUP;
    GDN_NO_UNROLL
    for (uint32_t i = 0; i < steps; i += GROUP) {
        gdn_cp_async_wait<STAGES / GROUP - 2>();
        gdn_fence_async();     /* wgmma reads what cp.async wrote */
        cluster::sync_block(); /* this group has landed, and nobody reads the one before it any more */
        const uint32_t end = i + GROUP < steps ? i + GROUP : steps;
        for (uint32_t j = i; j < i + GROUP; j++) {
            if (j + STAGES - GROUP < steps) load_stage(from, stages + next * STAGE_BYTES, (j + STAGES - GROUP) * STEP);
            next = next + 1 == STAGES ? 0 : next + 1;
        }
        gdn_cp_async_commit();
        GDN_NO_UNROLL
        for (uint32_t j = i; j < end; j++) {
            const unsigned char *const stage = stages + here * STAGE_BYTES;
            multiply_stage(s, gdn_make_tile_k(stage + group_row * 128), gdn_make_tile_k(stage + (ROWS + group_column) * 128));
            if (j % FOLD == FOLD - 1) fold(s);
            here = here + 1 == STAGES ? 0 : here + 1;
        }
    }
    fold(s);

    gdn_cp_async_wait<0>();
    cluster::sync_block(); /* the last stage has been read: its place is free */
    float *const part = reinterpret_cast<float *>(stages);
    store_part(s, part, group_row + warp % 4 * 16, group_column);
    cluster::sync();
    finish(part, row0, M, N, vheads_per_group ? vheads_per_group : nv, nv, gate_stride, A_log, dt_bias, gate_out);
    cluster::leave();
}
