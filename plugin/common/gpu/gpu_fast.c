/* gpu_fast.c - how the fast prefill is shared between its kernels and among multiprocessors, by sizes alone. No result depends on it but by
 * the segments of a plan (gpu_fast_segment). */
#include "gpu_rule.h"

enum { SM_FALLBACK = 132 };

static uint32_t multiprocessors(uint32_t sm_count) {
    return sm_count ? sm_count : SM_FALLBACK;
}

/* The first kernel, in 10 ns on an H200: three blocks a multiprocessor, in waves of 1370, or two with more registers, in waves of 950. */
static uint64_t slots_of(uint64_t sms, uint32_t prepare) {
    return (prepare == GPU_E_FAST_PREPARE_TWO ? 2 : 3) * sms;
}
static uint64_t prepare_time(uint64_t sms, uint32_t prepare, uint64_t blocks) {
    const uint64_t slots = slots_of(sms, prepare);
    return (blocks + slots - 1) / slots * (prepare == GPU_E_FAST_PREPARE_TWO ? 950 : 1370);
}
static uint32_t faster(uint64_t sms, uint64_t blocks) {
    return prepare_time(sms, GPU_E_FAST_PREPARE_TWO, blocks) < prepare_time(sms, GPU_E_FAST_PREPARE, blocks) ? GPU_E_FAST_PREPARE_TWO
                                                                                                             : GPU_E_FAST_PREPARE;
}

/* Value heads of a block where all blocks of the first kernel run at once: with fewer, more blocks are done sooner. In 10 ns on an H200; a
 * second block on a multiprocessor costs what it says. */
static uint32_t heads_of_block(uint64_t sms, uint64_t units, uint32_t ratio) {
    enum { BLOCK = 400, HEAD = 105, SECOND = 125 };
    uint64_t best = UINT64_MAX;
    uint32_t found = ratio;
    for (uint32_t heads = ratio; heads; heads--) {
        const uint64_t blocks = units * ((ratio + heads - 1) / heads), time = BLOCK + (uint64_t)HEAD * heads + (blocks > sms ? SECOND : 0);
        if (blocks <= slots_of(sms, GPU_E_FAST_PREPARE_TWO) && time < best) best = time, found = heads;
    }
    return found;
}

gpu_fast_share gpu_share_fast_all(uint32_t sm_count, const gdn_rule_shape *s, uint32_t batch, uint32_t chunks) {
    const uint64_t sms = multiprocessors(sm_count), tasks = 2ull * s->nv * batch, units = (uint64_t)s->nk * chunks * batch;
    return (gpu_fast_share) { .lead = chunks,
                              .blocks = (uint32_t)(tasks < sms ? tasks : sms),
                              .prepare = faster(sms, units),
                              .heads = heads_of_block(sms, units, s->nv / s->nk) };
}

/* The lead that is asked for, or a little less where that saves a wave: each chunk less takes 120. */
static void fit_waves(gpu_fast_share *x, uint64_t sms, uint64_t each, uint32_t most) {
    enum { LATE_CHUNK = 120, LEAST = 10 };
    static const uint32_t kernels[] = { GPU_E_FAST_PREPARE, GPU_E_FAST_PREPARE_TWO };
    const uint32_t asked = x->lead;
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t full = slots_of(sms, kernels[i]), fits = each * asked / full * full / each;
        const uint64_t leads[] = { asked, fits };
        for (uint32_t k = 0; k < 2; k++) {
            if (leads[k] < LEAST || leads[k] > most) continue;
            const uint64_t time = prepare_time(sms, kernels[i], each * leads[k]) + (asked - leads[k]) * LATE_CHUNK;
            if (time < best) best = time, x->lead = (uint32_t)leads[k], x->prepare = kernels[i];
        }
    }
}

/* The second kernel has two tasks a value head and sequence, one block each. Where these leave multiprocessors free, blocks there prepare
 * later chunks while the passes run, and the first kernel needs to do only the rest. On an H200, in 10 ns, fitted to leads that were
 * best: a pass gives 136 a chunk and takes 1700 less; a multiprocessor prepares a chunk of a key head with r value heads in 280 + 90 r. */
gpu_fast_share gpu_share_fast(uint32_t sm_count, const gdn_rule_shape *s, uint32_t batch, uint32_t chunks) {
    enum { PASS = 136, UNIT = 280, UNIT_HEAD = 90, LATE = 1700, LEAST = 10 };
    const uint64_t sms = multiprocessors(sm_count), tasks = 2ull * s->nv * batch, free_sms = tasks < sms ? sms - tasks : 0;
    gpu_fast_share x = gpu_share_fast_all(sm_count, s, batch, chunks);
    if (!free_sms || !batch || chunks <= LEAST) return x;
    const uint64_t time = (uint64_t)PASS * chunks, unit = UNIT + UNIT_HEAD * (uint64_t)(s->nv / s->nk);
    const uint64_t beside = time > LATE ? free_sms * (time - LATE) / (unit * s->nk * batch) : 0; /* chunks */
    if (beside == 0) return x;
    x.lead = beside < chunks - LEAST ? chunks - (uint32_t)beside : LEAST;
    x.heads = s->nv / s->nk;
    x.helpers = (uint32_t)free_sms;
    x.blocks = (uint32_t)sms;
    fit_waves(&x, sms, (uint64_t)s->nk * batch, chunks);
    return x;
}

/* The first kernel by W and N has a block for each (chunk, key head), two on a multiprocessor. What does not fill a wave is shared out,
 * each of them by blocks with some of its value heads. In 10 ns on an H200: a block takes 560 and 240 a value head. */
gpu_wn_share gpu_share_wn(uint32_t sm_count, const gdn_rule_shape *s, uint32_t batch, uint32_t chunks) {
    enum { BLOCK = 560, HEAD = 300 };
    const uint64_t slots = 2ull * multiprocessors(sm_count), units = (uint64_t)s->nk * chunks * batch, left = units % slots;
    const uint32_t ratio = s->nv / s->nk;
    gpu_wn_share x = { .whole = (uint32_t)units, .heads = ratio };
    uint64_t best = BLOCK + (uint64_t)HEAD * ratio;
    for (uint32_t heads = 1; left && heads < ratio; heads++) {
        const uint64_t blocks = left * ((ratio + heads - 1) / heads),
                       time = (blocks + slots - 1) / slots * (BLOCK + (uint64_t)HEAD * heads);
        if (time < best) best = time, x.heads = heads, x.whole = (uint32_t)(units - left);
    }
    x.blocks = (uint32_t)(x.whole + (units - x.whole) * ((ratio + x.heads - 1) / x.heads));
    return x;
}

uint32_t gpu_fast_blocks(uint32_t sm_count, uint64_t tasks) {
    const uint32_t sms = multiprocessors(sm_count);
    return tasks < sms ? (uint32_t)tasks : sms;
}
static uint64_t rounds(uint64_t tasks) {
    return (tasks + SM_FALLBACK - 1) / SM_FALLBACK;
}

/* Measured on an H200, in 10 ns: a chunk of a task takes 104 in a pass and 70 in carrying states over, a task 1000 besides, joining a
 * segment to the one before 180, the kernels more 700 together; a chunk of a key head is prepared in what it says above, by three blocks
 * a multiprocessor at once. Segments must save a tenth. */
uint32_t gpu_fast_segment(const gdn_rule_shape *s) {
    enum { PASS = 104, CARRY = 70, TASK = 1000, JOIN = 180, UNIT = 280, UNIT_HEAD = 90, KERNELS = 700, LEAST = 8, MOST = 64 };
    if (s->base.op != GDN_OP_PREFILL || s->k_dim != 128 || s->v_dim != 128 || s->ckpt_every || !s->nk || !s->max_batch) return 0;
    const uint64_t tokens = s->offsets ? s->max_tokens : s->max_tokens / s->max_batch, chunks = (tokens + GDN_CHUNK - 1) / GDN_CHUNK;
    const uint64_t tasks = 2ull * s->nv * s->max_batch;
    const uint64_t prepare = chunks * s->nk * s->max_batch * (UNIT + UNIT_HEAD * (uint64_t)(s->nv / s->nk)) / SM_FALLBACK;
    uint64_t best = (rounds(tasks) * (chunks * PASS + TASK)) * 9 / 10;
    uint32_t segment = 0;
    for (uint64_t n = 2; n <= MOST && chunks / n >= LEAST; n++) {
        const uint64_t each = (chunks + n - 1) / n, full = chunks / each;
        const uint64_t time =
            prepare + KERNELS + rounds(2 * tasks * full) * (each * CARRY + TASK) + full * JOIN + rounds(tasks * n) * (each * PASS + TASK);
        if (time < best) best = time, segment = (uint32_t)each;
    }
    return segment;
}
