/* gdn_types.cuh - vocabulary of the device sources: integers of fixed width, the 16-bit storage types and their conversions,
 * kernel and function qualifiers, dynamic shared memory. Needs no header of a CUDA toolkit.
 *
 * The same sources run on the CPU in tests/emu (GDN_EMU). What that asks of a kernel file:
 *   no inline PTX (it all lives in this folder), no `extern __shared__` (GDN_DYN_SMEM), no spin outside a wrapper, no waiting for
 *   another block (gdn_wait_word: blocks run one by one, so only for what an earlier one or this one does), whole warps where a
 *   full-mask collective is used, shift counts below the width,
 *   float to integer only in range, device globals as `static __device__`. Everything else of CUDA C++ is as usual. */
#pragma once

#ifdef GDN_EMU
#include "gdn_emu.hpp"
#else
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;

/* GDN_DYN_SMEM(float, tile): the block's dynamic shared memory as `float *tile`, 16-byte aligned. _ALIGNED: 128 for bulk copies,
 * 1024 for the 128-byte swizzle; static shared memory in front of it is padded up to that, so it costs the block's budget. */
#define GDN_DYN_SMEM_ALIGNED(type, name, alignment) \
    extern __shared__ __align__(alignment)          \
    unsigned char gdn_dyn_smem_##alignment[];       \
    type *const name = reinterpret_cast<type *>(gdn_dyn_smem_##alignment)
#define GDN_DYN_SMEM(type, name) GDN_DYN_SMEM_ALIGNED(type, name, 16)
#define GDN_GRID_CONSTANT        __grid_constant__
#define GDN_UNROLL               _Pragma("unroll")
#define GDN_NO_UNROLL            _Pragma("unroll 1")
#endif

#ifndef GDN_LINKAGE
#define GDN_LINKAGE extern "C"
#endif
/* GDN_KERNEL(256, 2) name(args): an entry, at most 256 threads, at least 2 blocks on a multiprocessor. */
#define GDN_KERNEL(...) GDN_LINKAGE __global__ void __launch_bounds__(__VA_ARGS__)
#define GDN_DEVICE      static __device__ __forceinline__
#define GDN_METHOD      __device__ __forceinline__

/* The first statement of every entry: a kernel may be started before the one in front of it on the stream has ended (launch_early in
 * gdn_backend.h), and behind this that one's writes are there. */
GDN_DEVICE void gdn_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* The next kernel may be started once all blocks have come here, or ended. For short kernels whose blocks leave room. */
GDN_DEVICE void gdn_let_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* ---- storage types: 16 bits in memory, f32 in arithmetic ---- */
struct gdn_bf16 {
    uint16_t bits;
};
struct gdn_f16 {
    uint16_t bits;
};

GDN_DEVICE uint32_t gdn_bits(float x) {
    return __float_as_uint(x);
}
GDN_DEVICE float gdn_float(uint32_t bits) {
    return __uint_as_float(bits);
}
/* Widening is exact. A pair is one 32-bit word, the lower address in the lower half. */
GDN_DEVICE float gdn_to_f32(gdn_bf16 x) {
    return gdn_float((uint32_t)x.bits << 16);
}
GDN_DEVICE float gdn_bf16_lo(uint32_t pair) {
    return gdn_float(pair << 16);
}
GDN_DEVICE float gdn_bf16_hi(uint32_t pair) {
    return gdn_float(pair & 0xffff0000u);
}

#ifdef GDN_EMU
#include "gdn_emu_types.hpp"
#else
/* Rounding to nearest, ties to even; a NaN becomes 0x7fff; out of range becomes an infinity. */
GDN_DEVICE gdn_bf16 gdn_to_bf16(float x) {
    gdn_bf16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
    return r;
}
GDN_DEVICE gdn_f16 gdn_to_f16(float x) {
    gdn_f16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
    return r;
}
GDN_DEVICE float gdn_to_f32(gdn_f16 x) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
    return r;
}
/* The instruction's first source is the upper half. */
GDN_DEVICE uint32_t gdn_pack_bf16(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
GDN_DEVICE uint32_t gdn_pack_f16(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
#endif
GDN_DEVICE float gdn_f16_lo(uint32_t pair) {
    return gdn_to_f32(gdn_f16 { (uint16_t)pair });
}
GDN_DEVICE float gdn_f16_hi(uint32_t pair) {
    return gdn_to_f32(gdn_f16 { (uint16_t)(pair >> 16) });
}
