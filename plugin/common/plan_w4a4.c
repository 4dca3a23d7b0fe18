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
    uint32_t blocks, parts, expanders, most;
} f16[GDN__W4A4_F16_ENTRIES] = {
#define ROW_(ID, entry, blocks, parts, expanders, most) { blocks, parts, expanders, most },
    GDN__W4A4_F16_MAP(ROW_)
#undef ROW_
};

/* Blocks that stay: as many as there are multiprocessors, or work. */
static gdn__w4a4_route f16_staged(uint32_t entry, uint32_t n, uint32_t k, uint32_t sms) {
    const uint32_t groups = GDN__W4A4_F16_GROUPS, sums = GDN__W4A4_PS_REDUCTION_BYTES * groups;
    const uint32_t each = 8 * GDN__W4A4_F16_SLOT_BYTES * f16[entry].blocks;
    const uint32_t want = gdn__w4a4_ps_stripe_chunks(k), most = (GDN__W4A4_F16_SMEM_MAX - sums) / each, sst = want < most ? want : most;
    const uint32_t work = tiles_of(tiles_of(n, 16), groups);
    return (gdn__w4a4_route) { .entry = entry,
                               .rows = 16,
                               .grid = work < sms ? work : sms,
                               .block = GDN__W4A4_BLOCK_THREADS * groups,
                               .sst = sst,
                               .smem = sst * each + sums };
}

/* 544 tiles on 132 multiprocessors are five each; 272 are three. */
static gdn__w4a4_route f16_wide(bool few, uint32_t n, uint32_t sms) {
    const uint32_t tiles = tiles_of(n, GDN__W4A4_WIDE_ROWS), each = tiles_of(tiles, sms), rounds = tiles_of(each, 5);
    const uint32_t groups = each <= 1 ? 2 : tiles_of(each, rounds);
    const uint32_t form = each <= 1 ? 2 : groups <= 3 ? 0 : 1;
    static const uint32_t entries[3][2] = { { GDN__W4A4_F16_32, GDN__W4A4_F16_64 },
                                            { GDN__W4A4_F16_32_X5, GDN__W4A4_F16_64_X5 },
                                            { GDN__W4A4_F16_32_K2, GDN__W4A4_F16_64_K2 } };
    const uint32_t entry = entries[form][few ? 0 : 1];
    const uint32_t parts = f16[entry].parts, expanders = f16[entry].expanders, tokens = 8 * f16[entry].blocks;
    return (gdn__w4a4_route) { .entry = entry,
                               .rows = GDN__W4A4_WIDE_ROWS * groups / parts,
                               .grid = tiles_of(tiles, groups / parts),
                               .block = 128 * (groups + expanders),
                               .smem = tokens * parts * (1024 + 216 * expanders) + 128 + 20480 * groups };
}

gdn__w4a4_route gdn__w4a4_f16_plan(uint32_t m, uint32_t n, uint32_t k, uint32_t sms) {
    const uint32_t on = sms ? sms : GDN__W4A4_F16_SMS;
    const uint32_t staged = m <= 8 ? GDN__W4A4_F16_8 : GDN__W4A4_F16_16;
    gdn__w4a4_route r = m <= 16 ? f16_staged(staged, n, k, on) : f16_wide(m <= 32, n, on);
    if (m == 0) r.grid = 0;
    return r;
}
