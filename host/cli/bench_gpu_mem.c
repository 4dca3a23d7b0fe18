/* bench_gpu_mem.c - device memory of the GPU rows: random contents, rotation through more than the last cache. */
#include "bench_gpu.h"
#include <stdlib.h>

enum { RANDOM_MIB = 32 };

/* bf16 in [-1, 1): a sign, an exponent that is 0.5 to 1 half of the time, and so on down. */
static bool make_random(gpu_bench *b) {
    b->random_bytes = (uint64_t)RANDOM_MIB << 20;
    uint16_t *host = malloc(b->random_bytes);
    uint64_t s = 0x9e3779b97f4a7c15u;
    if (!host || gdn_mem_alloc(b->g, b->random_bytes, &b->random)) goto failed;
    for (uint64_t i = 0; i < b->random_bytes / 2; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        const float x = (float)(int32_t)(s >> 32) * 0x1p-31f;
        const union {
            float f;
            uint32_t u;
        } bits = { x };
        host[i] = (uint16_t)(bits.u >> 16);
    }
    if (gdn_copy_in(b->g, NULL, b->random, host, b->random_bytes)) goto failed;
    free(host);
    return true;
failed:
    free(host);
    cli_error(b->cli, "%u MiB of random values could not be made on the device", (unsigned)RANDOM_MIB);
    return false;
}

uint64_t gpu_bench_take(gpu_bench *b, uint64_t bytes, bool random) {
    uint64_t p = 0;
    if (!b->random && !make_random(b)) return 0;
    if (b->n_taken == sizeof b->taken / sizeof *b->taken || gdn_mem_alloc(b->g, bytes, &p)) {
        cli_error(b->cli, "device memory of %llu bytes could not be had", (unsigned long long)bytes);
        return 0;
    }
    b->taken[b->n_taken++] = p;
    for (uint64_t at = 0; random && at < bytes; at += b->random_bytes) {
        const uint64_t n = bytes - at < b->random_bytes ? bytes - at : b->random_bytes;
        if (!gpu_ok(&b->clock, b->clock.copy_dtod(p + at, b->random, n, b->clock.stream), "cuMemcpyDtoDAsync")) {
            cli_error(b->cli, "%s", b->clock.why);
            return 0;
        }
    }
    if (!gpu_sync(&b->clock, b->clock.stream)) {
        cli_error(b->cli, "%s", b->clock.why);
        return 0;
    }
    return p;
}

void gpu_bench_release(gpu_bench *b) {
    while (b->n_taken) gdn_mem_free(b->g, b->taken[--b->n_taken]);
}

uint32_t gpu_bench_sets(const gpu_bench *b, uint64_t bytes) {
    const uint64_t l2 = b->clock.l2_bytes ? b->clock.l2_bytes : (uint64_t)64 << 20, want = (3 * l2 + bytes - 1) / bytes + 1;
    return want > GPU_BENCH_SETS ? GPU_BENCH_SETS : (uint32_t)want;
}
