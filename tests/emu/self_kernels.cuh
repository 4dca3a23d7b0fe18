/* self_kernels.cuh - small kernels with a planted fault each (PLANT), right when it is 0. Device code like any other: the compile
 * gates build it too. */
#pragma once
#include "gdn_device.cuh"

/* o[p] = sum of x[64 p .. +63], two warps. 1: no barrier before the partial sums are read; 2: none before they are rewritten. */
template <int PLANT> __global__ void self_sum(const float *x, float *o, int passes) {
    __shared__ float part[2];
    for (int p = 0; p < passes; p++) {
        const float a = gdn_warp_sum_down(x[p * 64 + (int)threadIdx.x]);
        if (gdn_lane() == 0) part[threadIdx.x / 32] = a;
        if (PLANT != 1) __syncthreads();
        if (threadIdx.x == 0) o[p] = part[0] + part[1];
        if (PLANT != 2) __syncthreads();
    }
}

/* o[t] = sum over c of the word that thread (t + 33) % 64 copied, two stages. 1: no barrier after the wait; 2: none before a stage
 * is refilled; 3: no wait. */
template <int PLANT> __global__ void self_stages(const uint4 *x, uint32_t *o, int n) {
    __shared__ uint4 tile[2][64];
    const int t = (int)threadIdx.x;
    uint32_t sum = 0;
    gdn_cp_async16(&tile[0][t], x + t);
    gdn_cp_async_commit();
    for (int c = 0; c < n; c++) {
        if (c + 1 < n) gdn_cp_async16(&tile[(c + 1) & 1][t], x + (c + 1) * 64 + t);
        gdn_cp_async_commit();
        if (PLANT != 3) gdn_cp_async_wait<1>();
        if (PLANT != 1) __syncthreads();
        sum += tile[c & 1][(t + 33) % 64].y;
        if (PLANT != 2) __syncthreads();
    }
    if (PLANT != 3) gdn_cp_async_wait<0>();
    o[t] = sum;
}

/* o = x for n elements. 1: reads one too many; 2: writes one too many. */
template <int PLANT> __global__ void self_copy(const float *x, float *o, int n) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n + (PLANT == 1)) {
        const float v = x[i];
        o[i < n ? i : n - 1] = v;
    }
    if (PLANT == 2 && i == n) o[i] = 1.0f;
}

/* Through dynamic (256 floats) and static shared memory. 1: one float past the dynamic end; 2: past the static end. */
template <int PLANT> __global__ void self_shared(const float *x, float *o) {
    GDN_DYN_SMEM(float, dyn);
    __shared__ float fix[256];
    const uint32_t t = threadIdx.x;
    dyn[t + (PLANT == 1)] = x[t];
    fix[t + (PLANT == 2)] = x[t];
    __syncthreads();
    o[t] = dyn[t ^ 1] + fix[t ^ 2];
}

/* 1: half of the block meets a barrier, the rest returns; 2: the halves meet different barriers. */
template <int PLANT> __global__ void self_barrier(float *o) {
    if (PLANT == 1 && threadIdx.x >= 128) return;
    if (PLANT == 2 && threadIdx.x >= 128) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    o[threadIdx.x] = 1.0f;
}

/* 1: a lane stays away from a shuffle; 2: a lane outside the mask is read; 3: a lane calls with a mask that lacks it. */
template <int PLANT> __global__ void self_shuffle(const float *x, float *o) {
    float v = x[threadIdx.x];
    const uint32_t lane = gdn_lane();
    if (PLANT == 1) {
        if (lane != 5) v += __shfl_xor_sync(GDN_FULL_MASK, v, 1);
    } else if (lane < 16) {
        v += __shfl_xor_sync(PLANT == 3 ? 0x00ffu : 0xffffu, v, PLANT == 2 ? 16 : 1);
    }
    o[threadIdx.x] = v;
}

/* Lanes hand a value on through shared memory, three rounds. 1: no __syncwarp after the write; 2: none before the next write. */
template <int PLANT> __global__ void self_warp(const float *x, float *o) {
    __shared__ float s[32];
    const uint32_t t = threadIdx.x;
    float v = x[t];
    for (int i = 0; i < 3; i++) {
        s[t] = v;
        if (PLANT != 1) __syncwarp();
        v = s[(t + 1) % 32] + 1.0f;
        if (PLANT != 2) __syncwarp();
    }
    o[t] = v;
}

/* 1: a 16-byte load from an address that is only 4-byte aligned. */
template <int PLANT> __global__ void self_align(const float *x, float *o) {
    o[threadIdx.x] = gdn_ld16f(x + 4 * threadIdx.x + (PLANT == 1)).x;
}

/* Two roles and a named barrier: warps 0..3 produce, 4..7 consume. 1: the consumers name another count; 2: they do not wait. */
template <int PLANT> __global__ void self_named(const float *x, float *o) {
    GDN_DYN_SMEM(float, s);
    const uint32_t t = threadIdx.x % 128;
    if (threadIdx.x < 128) {
        s[t] = x[t];
        gdn_bar_arrive(1, 256);
    } else {
        if (PLANT == 0) gdn_bar_sync(1, 256);
        if (PLANT == 1) gdn_bar_sync(1, 128);
        if (PLANT == 2) gdn_bar_arrive(1, 256);
        o[t] = s[127 - t];
    }
}

/* Warp 1 hands 32 values to warp 0 through global memory and a word. 1: the word is never written. 2: warp 0 does not wait. */
template <int PLANT> __global__ void __launch_bounds__(64) self_word(const float *x, float *o, uint32_t *word) {
    if (threadIdx.x >= 32) {
        o[threadIdx.x] = x[threadIdx.x];
        gdn_sync_warp();
        if (gdn_lane() == 0 && PLANT != 1) gdn_st_release(word, 1);
    } else {
        if (PLANT != 2) gdn_wait_word(word, 1);
        o[threadIdx.x] = o[32 + threadIdx.x] + 1;
    }
}
