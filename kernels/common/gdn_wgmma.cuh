/* gdn_wgmma.cuh - products of a warpgroup (sm_90a): four warps, the first one's index a multiple of 4, all in the same branch.
 *
 * D[64][N] (+)= A[64][16] B[16][N], 16-bit operands, f32 accumulators in registers: d[R], N = 2 R in {8, 16, 32, 64, 128, 256}.
 * Warp w of the group has rows 16w..16w+15. With g = lane / 4 and t = lane % 4 a thread holds D(16w+g, 8n+2t..+1) in d[4n..4n+1] and
 * D(16w+g+8, same) in d[4n+2..4n+3]; A from registers is laid out as in gdn_mma.cuh, so that packed accumulators are the next A:
 * for its k-step j, a = {pack(d[8j], d[8j+1]), pack(d[8j+2], d[8j+3]), pack(d[8j+4], d[8j+5]), pack(d[8j+6], d[8j+7])}.
 *
 * Operands in shared memory are tiles of panels: a panel has rows of 128 bytes (64 elements) in 128-byte swizzle, 1024-byte aligned.
 *   gdn_tile_k   rows are M or N, the contraction runs along the row. Steps of 16: 32 bytes, four in a panel; 8 rows: 1024 bytes
 *   gdn_tile_mn  rows are the contraction, M or N runs along the row and on into the next panel. Steps of 16: 2048 bytes
 * gdn_move goes on by bytes of the tile before swizzling. Both operands have one type.
 *
 * Order: gdn_wgmma_fence, products, gdn_wgmma_commit, gdn_wgmma_wait<N>: all but the N newest groups are done. Until then neither
 * the accumulators nor shared operands may be touched. gdn_wgmma_fence again after ordinary code wrote an accumulator or A.
 * gdn_pin(d) after a wait keeps the compiler from reading d early. Read ptxas's notes: it serialises products, silently otherwise,
 * when an accumulator is in flight across a loop's back edge. */
#pragma once
#include "gdn_bulk.cuh"

/* Four registers out of an array, at an index known when compiling: gdn_quad(s, 4 * j). */
template <int N> GDN_DEVICE const uint32_t (&gdn_quad(const uint32_t (&r)[N], int at))[4] {
    return reinterpret_cast<const uint32_t(&)[4]>(r[at]);
}

#ifdef GDN_EMU
#include "gdn_emu_wgmma.hpp"
#else
/* 64 bits: address, leading and stride offsets in 16-byte units, and the 128-byte swizzle. */
struct gdn_tile_k {
    uint64_t bits;
    enum { TRANSPOSED = 0 };
};
struct gdn_tile_mn {
    uint64_t bits;
    enum { TRANSPOSED = 1 };
};
GDN_DEVICE uint64_t gdn__tile_bits(const void *tile, uint32_t leading, uint32_t stride) {
    uint64_t bits = (uint64_t)((gdn__shared_addr(tile) & 0x3ffffu) >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
                    (uint64_t)1 << 62;
    asm volatile("" : "+l"(bits)); /* moves stay additions: as parts of the sum above each would be made anew, of several instructions */
    return bits;
}
GDN_DEVICE gdn_tile_k gdn_make_tile_k(const void *tile) {
    return { gdn__tile_bits(tile, 16, 1024) };
}
GDN_DEVICE gdn_tile_mn gdn_make_tile_mn(const void *tile, uint32_t panel_bytes) {
    return { gdn__tile_bits(tile, panel_bytes, 1024) };
}
template <class T> GDN_DEVICE T gdn_move(T tile, uint32_t bytes) {
    return { tile.bits + (bytes >> 4) };
}

GDN_DEVICE void gdn_wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
GDN_DEVICE void gdn_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> GDN_DEVICE void gdn_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int R> GDN_DEVICE void gdn_pin(float (&d)[R]) {
    GDN_UNROLL
    for (int i = 0; i < R; i++) asm volatile("" : "+f"(d[i])::"memory");
}
/* Registers of a warpgroup: multiples of 8 from 24 to 256; every warp of the group, one branch a role. */
template <int N> GDN_DEVICE void gdn_registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> GDN_DEVICE void gdn_registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* One size and type at a time: the operand lists have to be spelled out. */
template <int R, bool F16> struct gdn__wgmma;
#define GDN__WGMMA(REGS, WIDTH, IS_F16, TYPE, NAMES, OPERANDS, I0, I1, I2, I3, I4, I5, I6)                                                 \
    template <> struct gdn__wgmma<REGS, IS_F16> {                                                                                          \
        template <int TB> static __device__ __forceinline__ void rs(float (&d)[REGS], const uint32_t (&a)[4], uint64_t b, int keep) {      \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " I5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" WIDTH "k16.f32." TYPE "." TYPE   \
                         " {" NAMES "}, {" I0 ", " I1 ", " I2 ", " I3 "}, " I4 ", p, 1, 1, " I6 ";\n}"                                     \
                         : OPERANDS                                                                                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(TB));                                        \
        }                                                                                                                                  \
        template <int TA, int TB> static __device__ __forceinline__ void ss(float (&d)[REGS], uint64_t a, uint64_t b, int keep) {          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " I2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" WIDTH "k16.f32." TYPE "." TYPE   \
                         " {" NAMES "}, " I0 ", " I1 ", p, 1, 1, " I3 ", " I4 ";\n}"                                                       \
                         : OPERANDS                                                                                                        \
                         : "l"(a), "l"(b), "r"(keep), "n"(TA), "n"(TB));                                                                   \
        }                                                                                                                                  \
    };
#define GDN__NAMES4  "%0, %1, %2, %3"
#define GDN__OPS4    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define GDN__NAMES8  GDN__NAMES4 ", %4, %5, %6, %7"
#define GDN__OPS8    GDN__OPS4, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define GDN__NAMES16 GDN__NAMES8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define GDN__OPS16   GDN__OPS8, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define GDN__NAMES32 GDN__NAMES16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GDN__OPS32                                                                                                                         \
    GDN__OPS16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),       \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define GDN__NAMES64                                                                                                                       \
    GDN__NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                                        \
                 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GDN__OPS64                                                                                                                         \
    GDN__OPS32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),       \
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),  \
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]),  \
        "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define GDN__NAMES128                                                                                                                      \
    GDN__NAMES64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                                        \
                 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                                        \
                 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"                            \
                 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define GDN__OPS128                                                                                                                        \
    GDN__OPS64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]),       \
        "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]),  \
        "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]),  \
        "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]),             \
        "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]),      \
        "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),      \
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
GDN__WGMMA(4, "8", true, "f16", GDN__NAMES4, GDN__OPS4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
GDN__WGMMA(4, "8", false, "bf16", GDN__NAMES4, GDN__OPS4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
GDN__WGMMA(8, "16", true, "f16", GDN__NAMES8, GDN__OPS8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
GDN__WGMMA(8, "16", false, "bf16", GDN__NAMES8, GDN__OPS8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
GDN__WGMMA(16, "32", true, "f16", GDN__NAMES16, GDN__OPS16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
GDN__WGMMA(16, "32", false, "bf16", GDN__NAMES16, GDN__OPS16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
GDN__WGMMA(32, "64", true, "f16", GDN__NAMES32, GDN__OPS32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
GDN__WGMMA(32, "64", false, "bf16", GDN__NAMES32, GDN__OPS32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
GDN__WGMMA(64, "128", true, "f16", GDN__NAMES64, GDN__OPS64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
GDN__WGMMA(64, "128", false, "bf16", GDN__NAMES64, GDN__OPS64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
GDN__WGMMA(128, "256", true, "f16", GDN__NAMES128, GDN__OPS128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
GDN__WGMMA(128, "256", false, "bf16", GDN__NAMES128, GDN__OPS128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
#undef GDN__WGMMA
#undef GDN__NAMES4
#undef GDN__OPS4
#undef GDN__NAMES8
#undef GDN__OPS8
#undef GDN__NAMES16
#undef GDN__OPS16
#undef GDN__NAMES32
#undef GDN__OPS32
#undef GDN__NAMES64
#undef GDN__OPS64
#undef GDN__NAMES128
#undef GDN__OPS128
/* d (+)= A B; keep = false: the accumulators start at zero. A from registers, or from a tile. */
template <int R, class B> GDN_DEVICE void gdn_wgmma_f16(float (&d)[R], const uint32_t (&a)[4], B b, bool keep) {
    gdn__wgmma<R, true>::template rs<B::TRANSPOSED>(d, a, b.bits, keep);
}
template <int R, class B> GDN_DEVICE void gdn_wgmma_bf16(float (&d)[R], const uint32_t (&a)[4], B b, bool keep) {
    gdn__wgmma<R, false>::template rs<B::TRANSPOSED>(d, a, b.bits, keep);
}
template <int R, class A, class B> GDN_DEVICE void gdn_wgmma_f16(float (&d)[R], A a, B b, bool keep) {
    gdn__wgmma<R, true>::template ss<A::TRANSPOSED, B::TRANSPOSED>(d, a.bits, b.bits, keep);
}
template <int R, class A, class B> GDN_DEVICE void gdn_wgmma_bf16(float (&d)[R], A a, B b, bool keep) {
    gdn__wgmma<R, false>::template ss<A::TRANSPOSED, B::TRANSPOSED>(d, a.bits, b.bits, keep);
}
#endif
