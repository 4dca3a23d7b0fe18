/* cpu_isa.c - which instruction set to run: what the machine has, what the build carries. */
#include "cpu_kernels.h"

const char *gdn_cpu_isa_name(uint32_t isa) {
    static const char *const name[GDN_CPU_ISAS] = { "base", "avx2", "avx512" };
    return isa < GDN_CPU_ISAS ? name[isa] : "unknown";
}

uint32_t gdn_cpu_isa_pick(uint32_t limit) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (limit >= GDN_CPU_AVX512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return GDN_CPU_AVX512;
    if (limit >= GDN_CPU_AVX2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return GDN_CPU_AVX2;
#else
    (void)limit;
#endif
    return GDN_CPU_BASE;
}
