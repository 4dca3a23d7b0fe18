/* gt_checked.c - GDN_PLAN_CHECKED on the device: a bad slot is named before anything is written, good ones go through. */
#include "gt.h"
#include <string.h>

enum { SLOTS = 4, BYTES = 4096 };

typedef struct pools {
    uint64_t src, dst, from, to;
    uint8_t host[SLOTS * BYTES];
} pools;

static bool fill_pools(gt *t, pools *p) {
    static const int32_t from[] = { 1, 0 };
    gdn *g = t->dev;
    for (uint32_t i = 0; i < sizeof p->host; i++) p->host[i] = (uint8_t)(i * 7 + i / BYTES);
    return gt_check(t,
                    !gdn_mem_alloc(g, sizeof p->host, &p->src) && !gdn_mem_alloc(g, sizeof p->host, &p->dst) &&
                        !gdn_mem_alloc(g, sizeof from, &p->from) && !gdn_mem_alloc(g, sizeof from, &p->to) &&
                        !gdn_copy_in(g, NULL, p->src, p->host, sizeof p->host) && !gdn_fill(g, NULL, p->dst, 0xEE, sizeof p->host) &&
                        !gdn_copy_in(g, NULL, p->from, from, sizeof from) && !gdn_sync(g, NULL),
                    "no memory for two pools");
}

/* Slots 1 and 0 go to to[0] and to[1]; what is then in the destination. */
static gdn_status copy(gt *t, const gdn_hplan *plan, const pools *p, const int32_t to[2], uint8_t got[SLOTS * BYTES]) {
    const uint64_t ptr[] = { p->src, p->dst, p->from, p->to };
    const uint32_t two = 2;
    const gdn_launch_args args = { (uint32_t)sizeof args, GDN_STATE_COPY_N_PTR, 1, 0, NULL, ptr, &two };
    (void)gt_check(t, !gdn_copy_in(t->dev, NULL, p->to, to, 8) && !gdn_sync(t->dev, NULL), "slots");
    const gdn_status st = gdn_launch(plan, &args);
    (void)gt_check(t, !gdn_copy_out(t->dev, NULL, got, p->dst, SLOTS * BYTES), "copy_out");
    return st;
}

void gt_test_checked(gt *t) {
    static const int32_t far[] = { 2, SLOTS }, twice[] = { 3, 3 }, good[] = { 2, 0 };
    const gdn_state_shape s = { .base = { (uint32_t)sizeof s, GDN_OP_STATE_COPY, GDN_PLAN_CHECKED, 0 },
                                .bytes = BYTES,
                                .src_slots = SLOTS,
                                .dst_slots = SLOTS,
                                .max_count = 2 };
    static pools p;
    static uint8_t got[SLOTS * BYTES], poison[SLOTS * BYTES];
    gdn_hplan *plan = NULL;
    if (!gt_begin(t, "checked_plan_names_bad_slots")) return;
    memset(&p, 0, sizeof p);
    memset(poison, 0xEE, sizeof poison);
    if (gt_check(t, gdn_plan_make(t->dev, &s.base, NULL, &plan, NULL) == GDN_OK, "no plan") && fill_pools(t, &p)) {
        (void)gt_check(t, copy(t, plan, &p, far, got) == GDN_E_CHECKED, "slot %u of %u was taken", SLOTS, SLOTS);
        (void)gt_check(t, memcmp(got, poison, sizeof got) == 0, "something was written");
        (void)gt_check(t, copy(t, plan, &p, twice, got) == GDN_E_CHECKED, "a slot was written twice");
        (void)gt_check(t, memcmp(got, poison, sizeof got) == 0, "something was written");
        (void)gt_check(t, copy(t, plan, &p, good, got) == GDN_OK, "good slots were refused");
        (void)gt_check(t, memcmp(got + 2 * BYTES, p.host + BYTES, BYTES) == 0 && memcmp(got, p.host, BYTES) == 0, "a wrong copy");
    }
    gdn_plan_free(plan);
    const uint64_t all[] = { p.src, p.dst, p.from, p.to };
    for (uint32_t i = 0; i < 4; i++)
        if (all[i]) gdn_mem_free(t->dev, all[i]);
    gt_end(t);
}
