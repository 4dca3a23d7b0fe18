/* plan_w4a4.c - see plan_w4a4.h. */
#include "plan_w4a4.h"

static uint32_t tiles_of(uint32_t n, uint32_t rows) {
    return n / rows + (n % rows != 0);
}

uint32_t gdn__w4a4_ps_column_blocks(uint32_t m) {
    return m <= 16 ? 2 : 4;
}

uint64_t gdn__w4a4_ps_smem_bytes(uint32_t column_blocks, uint32_t sst) {
    return 8 * (uint64_t)sst * column_blocks * GDN__W4A4_PS_SLOT_BYTES + GDN__W4A4_PS_REDUCTION_BYTES;
}

uint32_t gdn__w4a4_ps_stripe_chunks(uint32_t k) {
    return tiles_of(k / 128, 8);
}

gdn__w4a4_route gdn__w4a4_mx_pick(uint32_t m, uint32_t n, uint32_t nt) {
    const bool one = nt == 1;
    gdn__w4a4_route r = { .entry = one ? GDN__W4A4_MX64 : GDN__W4A4_MX64_NT2, .rows = one ? 16 : 32, .block = GDN__W4A4_BLOCK_THREADS };
    if (m <= 8) {
        r.entry = GDN__W4A4_MX8;
        r.rows = 16;
    } else if (m <= 16) {
        r.entry = one ? GDN__W4A4_MX16 : GDN__W4A4_MX16_NT2;
    } else if (m <= 32) {
        r.entry = one ? GDN__W4A4_MX32 : GDN__W4A4_MX32_NT4;
        r.rows = one ? 16 : 64;
    }
    r.grid = tiles_of(n, r.rows);
    return r;
}

gdn__w4a4_route gdn__w4a4_mx_plan(uint32_t m, uint32_t n, uint32_t k, uint32_t nt, bool ps, uint32_t sms) {
    gdn__w4a4_route r = gdn__w4a4_mx_pick(m, n, nt);
    if (m == 0) r.grid = 0;
    if (!ps || nt == 1 || m <= 8 || m > GDN__W4A4_PS_MAX_M || sms == 0) return r;
    const uint32_t sst = gdn__w4a4_ps_stripe_chunks(k);
    const uint64_t smem = gdn__w4a4_ps_smem_bytes(gdn__w4a4_ps_column_blocks(m), sst);
    if (smem > GDN__W4A4_PS_SMEM_MAX || tiles_of(n, 16) < (uint64_t)GDN__W4A4_PS_MIN_TILES_PER_SM * sms) return r;
    return (gdn__w4a4_route) { .entry = m <= 16 ? GDN__W4A4_MX16_PS : GDN__W4A4_MX32_PS,
                               .rows = 16,
                               .grid = sms,
                               .block = GDN__W4A4_BLOCK_THREADS,
                               .sst = sst,
                               .smem = (uint32_t)smem };
}

static const struct {
    uint32_t blocks, expanders, most;
} f16[GDN__W4A4_F16_ENTRIES] = {
#define ROW_(ID, entry, blocks, expanders, most) { blocks, expanders, most },
    GDN__W4A4_F16_MAP(ROW_)
#undef ROW_
};

static uint32_t staged_most(uint32_t entry) {
    return (GDN__W4A4_F16_SMEM_MAX - GDN__W4A4_PS_REDUCTION_BYTES * GDN__W4A4_F16_GROUPS) /
           (8 * GDN__W4A4_F16_SLOT_BYTES * f16[entry].blocks);
}

/* Blocks that stay: as many as there are multiprocessors, or work. */
static gdn__w4a4_route f16_staged(uint32_t entry, uint32_t n, uint32_t k, uint32_t sms) {
    const uint32_t groups = GDN__W4A4_F16_GROUPS, sums = GDN__W4A4_PS_REDUCTION_BYTES * groups;
    const uint32_t each = 8 * GDN__W4A4_F16_SLOT_BYTES * f16[entry].blocks;
    const uint32_t sst = gdn__w4a4_ps_stripe_chunks(k);
    const uint32_t work = tiles_of(tiles_of(n, 16), groups);
    return (gdn__w4a4_route) { .entry = entry,
                               .rows = 16,
                               .grid = work < sms ? work : sms,
                               .block = GDN__W4A4_BLOCK_THREADS * groups,
                               .sst = sst,
                               .smem = sst * each + sums };
}

/* Three groups of 64 rows a block, four where there is enough for each; fewer where there are no more rows. */
static gdn__w4a4_route f16_wide(uint32_t entry, uint32_t n, uint32_t k, uint32_t sms) {
    const uint32_t tiles = tiles_of(n, GDN__W4A4_WIDE_ROWS), tokens = 8 * f16[entry].blocks, expanders = f16[entry].expanders;
    uint32_t groups = tiles / 4 >= sms ? 4 : tiles < 3 ? tiles : 3;
    if (groups > f16[entry].most) groups = f16[entry].most;
    const uint64_t units = (uint64_t)tiles_of(tiles, groups) * tiles_of(k / 128, 2), most = (GDN__W4A4_WIDE_FLAGS - 1) / groups;
    const uint32_t here = sms < most ? sms : (uint32_t)most, grid = units < here ? (uint32_t)units : here;
    return (gdn__w4a4_route) { .entry = entry,
                               .rows = GDN__W4A4_WIDE_ROWS * groups,
                               .grid = grid,
                               .block = 128 * (groups + expanders),
                               .smem = 1024 * tokens + 128 + 27648 * groups,
                               .workspace = 4 * GDN__W4A4_WIDE_FLAGS + (uint64_t)grid * groups * 256 * tokens };
}

/* The rows of a launch decide, and k: so the bytes of 1 to 8 rows, of 9 to 16, 17 to 32 and 33 to 64 do not depend on how many there are.
 */
gdn__w4a4_route gdn__w4a4_f16_plan(uint32_t m, uint32_t n, uint32_t k, uint32_t sms) {
    const uint32_t on = sms ? sms : GDN__W4A4_F16_SMS, staged = m <= 8 ? GDN__W4A4_F16_8 : GDN__W4A4_F16_16;
    const bool fits = m <= 16 && gdn__w4a4_ps_stripe_chunks(k) <= staged_most(staged);
    gdn__w4a4_route r = fits ? f16_staged(staged, n, k, on)
                             : f16_wide(m <= 16   ? GDN__W4A4_F16_16_WIDE
                                        : m <= 32 ? GDN__W4A4_F16_32
                                                  : GDN__W4A4_F16_64,
                                        n, k, on);
    if (m == 0) r.grid = 0;
    return r;
}
