/* gt_conv.c - convolutions on the device against the cpu target, and rows B87 to B100. */
#include "gt.h"
#include <stdio.h>
#include <string.h>

static const uint32_t len_mixed[] = { 1, 4, 70, 2 }, len_gap[] = { 3, 0, 33, 1, 17 }, len_two[] = { 3, 7 }, len_short[] = { 1, 2, 3, 2 };
static const int32_t slots_pad[] = { 2, -1, 5 }, slots_many[] = { 4, -1, 0, 6, 2 }, accepted3[] = { 0, 2, 3 },
                     accepted5[] = { 0, 1, 2, 3, 3 };
static const uint8_t fresh2[] = { 0, 1 }, fresh5[] = { 1, 0, 0, 1, 0 };

typedef struct named {
    const char *name;
    gt_conv c;
    bool brief;
} named;

#define FUSED .nk = 2, .nv = 6, .dim = 128
static const named cases[] = {
    { "conv1d_uniform", { .channels = 1280, .batch = 3, .rows = 37, .bias = true }, true },
    { "conv1d_no_silu", { .channels = 264, .batch = 2, .rows = 40, .no_silu = true }, true },
    { "conv1d_f32_weights", { .channels = 264, .batch = 2, .rows = 40, .bias = true, .weight_type = GDN_F32 }, false },
    { "conv1d_packed_cu64",
      { .channels = 520, .batch = 5, .len = len_gap, .offsets = GDN_OFFSETS_I64, .slots = slots_many, .fresh = fresh5 },
      true },
    { "conv1d_update_32", { .channels = 10240, .batch = 32, .rows = 1 }, false },
    { "conv1d_keep_rows", { .channels = 520, .batch = 3, .rows = 3, .extra = 4, .keep = true, .accepted = accepted3 }, true },
    { "B87_conv_without_state", { .channels = 520, .rows = 1026, .no_state = true, .no_slots = true }, false },
    { "B89_conv_short_pieces", { .channels = 130, .batch = 4, .len = len_short }, true },
    { "B90_conv_wider_state", { .channels = 130, .batch = 3, .rows = 9, .extra = 3 }, true },
    { "B90_conv_wider_state_accepted", { .channels = 130, .batch = 3, .rows = 9, .extra = 3, .accepted = accepted3 }, true },
    { "B91_conv_width_1", { .channels = 260, .rows = 33, .width = 1, .no_state = true, .no_slots = true }, false },
    { "B91_conv_width_2", { .channels = 260, .rows = 33, .width = 2 }, false },
    { "B91_conv_width_3", { .channels = 260, .rows = 33, .width = 3 }, false },
    { "B91_conv_width_5", { .channels = 260, .rows = 33, .width = 5 }, false },
    { "B91_conv_width_8", { .channels = 260, .rows = 33, .width = 8 }, false },
    { "B95_conv_pitch_2068", { .channels = 2064, .batch = 2, .rows = 21, .x_pad = 4, .out_pad = 4 }, true },
    { "B95_conv_offset_pointer", { .channels = 2064, .batch = 2, .rows = 21, .shift = 2 }, true },
    { "B96_conv_padding_slot", { .channels = 520, .batch = 3, .rows = 5, .slots = slots_pad, .num_slots = 7 }, true },
    { "B97_conv_packed_fresh", { .channels = 520, .batch = 2, .len = len_two, .fresh = fresh2 }, true },
    { "B100_conv_mixed_lengths", { .channels = 520, .batch = 4, .len = len_mixed }, true },
    { "conv_fused_uniform", { FUSED, .batch = 2, .rows = 45 }, true },
    { "conv_fused_bias_pads", { FUSED, .batch = 2, .rows = 45, .bias = true, .x_pad = 8, .out_pad = 24 }, true },
    { "conv_fused_dim_64", { .nk = 3, .nv = 6, .dim = 64, .batch = 2, .rows = 33 }, false },
    { "conv_fused_dim_96", { .nk = 2, .nv = 4, .dim = 96, .rows = 33 }, false },
    { "conv_fused_dim_256", { .nk = 2, .nv = 2, .dim = 256, .rows = 33 }, false },
    { "conv_fused_packed_padding_fresh", { FUSED, .batch = 5, .len = len_gap, .slots = slots_many, .fresh = fresh5 }, true },
    { "conv_fused_packed_cu64", { FUSED, .batch = 5, .len = len_gap, .offsets = GDN_OFFSETS_I64 }, true },
    { "conv_fused_keep_rows_accepted", { FUSED, .batch = 5, .rows = 4, .extra = 4, .keep = true, .accepted = accepted5 }, true },
    { "conv_fused_accepted", { FUSED, .batch = 5, .rows = 4, .extra = 3, .accepted = accepted5, .slots = slots_many }, true },
    { "conv_fused_no_state", { FUSED, .rows = 40, .no_state = true, .no_slots = true }, true },
    { "conv_fused_offset_pointer", { FUSED, .batch = 2, .rows = 21, .shift = 2 }, true },
    { "conv_fused_update_256", { .nk = 16, .nv = 48, .dim = 128, .batch = 256, .rows = 1 }, false },
    { "conv_fused_T1168_16_48", { .nk = 16, .nv = 48, .dim = 128, .rows = 1168 }, false },
};

/* B92: a weight of the oldest tap alone delays by 3. */
static void taps_in_order(gt *t) {
    enum { C = 16, T = 8 };
    const gt_conv c = { .channels = C, .rows = T, .no_silu = true };
    gt_shapes s;
    gt_job job;
    gt_live l;
    if (!gt_begin(t, "B92_conv_tap_order")) return;
    gt_conv_job(t, &c, &s, &job);
    uint16_t *w = gt_keep(t, 2 * C * 4), *x = gt_keep(t, 2 * T * C);
    for (uint32_t i = 0; i < C; i++) w[i * 4] = num_to_bf16(1);
    for (uint32_t i = 0; i < T * C; i++) x[i] = num_to_bf16(1 + i / C);
    job.buf[GDN_CONV1D_P_WEIGHT].init = w;
    job.buf[GDN_CONV1D_P_X].init = x;
    if (gt_up(t, t->dev, &job, &l) && gt_check(t, gt_launch(&l, NULL) == GDN_OK, "launch") && gt_down(t, &l, NULL))
        for (uint32_t i = 3 * C; i < T * C; i++)
            (void)gt_check(t, num_get(l.got[GDN_CONV1D_P_OUT], GDN_BF16, i) == (double)(i / C - 2), "token %u gives %g, expected %u", i / C,
                           num_get(l.got[GDN_CONV1D_P_OUT], GDN_BF16, i), i / C - 2);
    gt_drop(&l);
    gt_end(t);
}

/* B91: a width beyond the contract. */
static void width_refused(gt *t) {
    const gt_conv c = { .channels = 64, .rows = 4, .width = 8 };
    gt_shapes s;
    gt_job job;
    gdn_hplan *plan = NULL;
    if (!gt_begin(t, "B91_conv_width_9_is_refused")) return;
    gt_conv_job(t, &c, &s, &job);
    s.conv.width = 9;
    s.conv.state_len = 8;
    const gdn_status st = t->dev ? gdn_plan_make(t->dev, job.shape, NULL, &plan, NULL) : GDN_E_ARG;
    (void)gt_check(t, st == GDN_E_ARG && !plan, "it gave %s", gdn_status_name(st));
    gt_end(t);
}

/* B99: the state after each of many steps, 8 sequences, on the device and on the cpu target from the same rows. */
static void many_steps(gt *t) {
    const gt_conv c = { FUSED, .batch = 8, .rows = 1 };
    const uint32_t steps = t->device_steps;
    gt_shapes s;
    gt_job job;
    gt_live ref, dev;
    if (!gt_begin(t, "B99_conv_state_%u_steps", steps)) return;
    gt_conv_job(t, &c, &s, &job);
    uint16_t *x = gt_keep(t, job.buf[0].bytes);
    const bool up = gt_up(t, t->cpu, &job, &ref) && gt_up(t, t->dev, &job, &dev);
    job.buf[0].role = GT_INOUT; /* it is replaced at every step: not compared with its first contents */
    job.buf[0].type = GDN_BF16;
    for (uint32_t i = 0; up && i < steps && !t->bad; i++) {
        num_fill(x, GDN_BF16, job.buf[0].bytes / 2, &t->r, -2, 2);
        bool ok = gdn_copy_in(t->cpu, NULL, ref.ptr[0], x, job.buf[0].bytes) == GDN_OK &&
                  gdn_copy_in(t->dev, NULL, dev.ptr[0], x, job.buf[0].bytes) == GDN_OK && gt_launch(&ref, NULL) == GDN_OK &&
                  gt_launch(&dev, NULL) == GDN_OK;
        ok = gt_check(t, ok, "step %u did not run", i) && gt_down(t, &ref, NULL) && gt_down(t, &dev, NULL);
        if (ok) (void)gt_same_bytes(t, ref.got[GDN_CONV_FUSED_P_STATE], dev.got[GDN_CONV_FUSED_P_STATE], job.buf[3].bytes, "state");
    }
    if (up && !t->bad) {
        (void)gt_same(t, &ref, &dev, true);
        gt_control(t, &ref, &dev);
    }
    gt_drop(&ref);
    if (up) gt_drop(&dev);
    gt_end(t);
}

/* Each sequence of a packed batch gives the bytes that it gives alone. */
static void alone_and_packed(gt *t) {
    const gt_conv c = { FUSED, .batch = 4, .len = len_mixed };
    gt_shapes s;
    gt_job job;
    gt_live all, one;
    if (!gt_begin(t, "B100_conv_fused_alone_as_packed")) return;
    gt_conv_job(t, &c, &s, &job);
    gt_job single = job;
    single.u32[0] = 1;
    uint64_t row = 0;
    if (gt_up(t, t->dev, &job, &all) && gt_check(t, gt_launch(&all, NULL) == GDN_OK, "launch") && gt_down(t, &all, NULL)) {
        const int32_t *slot = job.buf[GDN_CONV_FUSED_P_SLOTS].init;
        for (uint32_t b = 0; b < 4 && !t->bad; b++, row += len_mixed[b - 1]) {
            int32_t *cu = gt_keep(t, 20), *sl = gt_keep(t, 16);
            cu[1] = (int32_t)len_mixed[b];
            for (uint32_t k = 2; k < 5; k++) cu[k] = cu[1];
            sl[0] = slot[b];
            single.buf[GDN_CONV_FUSED_P_X].init = (const uint16_t *)job.buf[0].init + row * s.conv.x_stride;
            single.buf[GDN_CONV_FUSED_P_X].bytes = 2ull * len_mixed[b] * s.conv.x_stride;
            single.buf[GDN_CONV_FUSED_P_CU_SEQLENS].init = cu;
            single.buf[GDN_CONV_FUSED_P_SLOTS].init = sl;
            if (gt_up(t, t->dev, &single, &one) && gt_check(t, gt_launch(&one, NULL) == GDN_OK, "launch") && gt_down(t, &one, NULL)) {
                const uint64_t q = s.conv.q_stride, st = s.conv.channels * (uint64_t)s.conv.state_len * 2;
                (void)gt_same_bytes(t, all.got[GDN_CONV_FUSED_P_OUT_K] + row * q * 2, one.got[GDN_CONV_FUSED_P_OUT_K], len_mixed[b] * q * 2,
                                    "k rows");
                (void)gt_same_bytes(t, all.got[GDN_CONV_FUSED_P_STATE] + (uint64_t)slot[b] * st,
                                    one.got[GDN_CONV_FUSED_P_STATE] + (uint64_t)slot[b] * st, st, "state");
            }
            gt_drop(&one);
        }
    }
    gt_drop(&all);
    gt_end(t);
}

void gt_test_conv(gt *t) {
    gt_shapes s;
    gt_job job;
    for (uint32_t i = 0; i < GT_N(cases); i++) {
        if ((t->brief && !cases[i].brief) || !gt_begin(t, "%s", cases[i].name)) continue;
        gt_conv_job(t, &cases[i].c, &s, &job);
        gt_pair(t, &job);
        gt_end(t);
    }
    if (t->brief) return;
    taps_in_order(t);
    width_refused(t);
    many_steps(t);
    alone_and_packed(t);
}
