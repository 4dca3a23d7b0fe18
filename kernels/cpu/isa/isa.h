/* isa.h - the vector type of the instruction set that a file in this folder is being compiled for.
 *
 * Every .c file here is compiled once per instruction set; the build defines GDN_ISA as base, avx2 or avx512 and sets the
 * flags. Names that leave a file go through GDN_ISA_NAME(x), so that the three copies can be linked together:
 *
 *     const struct gdn_cpu_prefill_table GDN_ISA_NAME(gdn_cpu_prefill_table) = { ... };
 *
 * GCC's vector extensions carry the code; the type is never wider than the machine's registers (a wider one is lowered to
 * very slow code). Files that promise bytes are compiled without contraction; FMAs are asked for with vfma(). */
#ifndef GDN_ISA_H
#define GDN_ISA_H

#include <stdint.h>
#include <string.h>

#define GDN_ISA_CAT2(a, b) a##_##b
#define GDN_ISA_CAT(a, b)  GDN_ISA_CAT2(a, b)
#define GDN_ISA_NAME(x)    GDN_ISA_CAT(x, GDN_ISA)

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX2__)
#define VL 8
#else
#define VL 4
#endif

#define GDN_INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(VL * 4), may_alias));
typedef float vf_unaligned __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(VL * 4), may_alias));

GDN_INLINE vf vload(const float *p) {
    return *(const vf_unaligned *)p;
}
GDN_INLINE void vstore(float *p, vf x) {
    *(vf_unaligned *)p = x;
}
GDN_INLINE vf vset(float x) {
    return x - (vf) { 0 };
}
/* m's lanes are 0 or -1. */
GDN_INLINE vf vsel(vi m, vf a, vf b) {
    return (vf)((m & (vi)a) | (~m & (vi)b));
}

#endif
