/* gt_job.c - one launch with guarded buffers, on one target or on two; see gt.h. */
#include "gt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAND_BYTE = 0xC5 };

static uint64_t place_of(const gt_buf *b) {
    return GT_BAND + b->shift;
}
static uint64_t whole_of(const gt_buf *b) {
    return place_of(b) + b->bytes + GT_BAND;
}
static bool is_own(const gt_buf *b) {
    return b->bytes && !b->same_as;
}

static bool put_one(gt *t, const gt_live *l, uint32_t i, void *stream) {
    const gt_buf *b = &l->job->buf[i];
    const uint64_t whole = whole_of(b);
    uint8_t *host = malloc(whole);
    if (!host) return gt_check(t, false, "out of memory");
    memset(host, BAND_BYTE, whole);
    if (b->init)
        memcpy(host + place_of(b), b->init, b->bytes);
    else
        memset(host + place_of(b), 0xFF, b->bytes);
    const gdn_status st = gdn_copy_in(l->g, stream, l->base[i], host, whole);
    free(host);
    return gt_check(t, st == GDN_OK, "copy to the device: %s", gdn_status_text(st));
}

bool gt_fill(gt *t, const gt_live *l, void *stream) {
    for (uint32_t i = 0; i < l->job->n_ptr; i++)
        if (is_own(&l->job->buf[i]) && !put_one(t, l, i, stream)) return false;
    return true;
}

bool gt_up(gt *t, gdn *g, const gt_job *job, gt_live *l) {
    char why[512] = "";
    gdn_text err = { why, sizeof why, 0 };
    *l = (gt_live) { .g = g, .job = job };
    if (!g) return gt_check(t, false, "the target is not open");
    const gdn_status st = gdn_plan_make(g, job->shape, NULL, &l->plan, &err);
    if (!gt_check(t, st == GDN_OK, "plan: %s: %.300s", gdn_status_name(st), why)) return false;
    for (uint32_t i = 0; i < job->n_ptr; i++) {
        const gt_buf *b = &job->buf[i];
        if (!is_own(b)) continue;
        if (!gt_check(t, gdn_mem_alloc(g, whole_of(b), &l->base[i]) == GDN_OK, "device memory")) return false;
        l->ptr[i] = l->base[i] + place_of(b);
    }
    for (uint32_t i = 0; i < job->n_ptr; i++)
        if (job->buf[i].same_as) l->ptr[i] = l->ptr[job->buf[i].same_as - 1];
    return gt_fill(t, l, NULL);
}

gdn_status gt_launch(const gt_live *l, void *stream) {
    const gdn_launch_args args = { (uint32_t)sizeof args, l->job->n_ptr, l->job->n_u32, 0, stream, l->ptr, l->job->u32 };
    return gdn_launch(l->plan, &args);
}

static bool band_whole(const uint8_t *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (p[i] != BAND_BYTE) return false;
    return true;
}

bool gt_down(gt *t, gt_live *l, void *stream) {
    bool ok = true;
    for (uint32_t i = 0; i < l->job->n_ptr && ok; i++) {
        const gt_buf *b = &l->job->buf[i];
        if (!is_own(b)) continue;
        const uint64_t whole = whole_of(b), place = place_of(b);
        uint8_t *all = malloc(whole);
        if (!all) return gt_check(t, false, "out of memory");
        const gdn_status st = gdn_copy_out(l->g, stream, all, l->base[i], whole);
        ok = gt_check(t, st == GDN_OK, "copy from the device: %s", gdn_status_text(st)) &&
             gt_check(t, band_whole(all, place), "bytes before pointer %u were written", i) &&
             gt_check(t, band_whole(all + place + b->bytes, GT_BAND), "bytes behind pointer %u were written", i) &&
             gt_check(t, b->role != GT_IN || !b->init || memcmp(all + place, b->init, b->bytes) == 0, "input %u was changed", i);
        if (ok && (b->role & GT_OUT)) {
            if (!l->got[i]) l->got[i] = gt_keep(t, b->bytes);
            memcpy(l->got[i], all + place, b->bytes);
        }
        free(all);
    }
    return ok;
}

void gt_drop(gt_live *l) {
    for (uint32_t i = 0; i < GT_MAX_PTR; i++) gdn_mem_free(l->g, l->base[i]);
    gdn_plan_free(l->plan);
    *l = (gt_live) { 0 };
}

const char *gt_entry(const gt_live *l) {
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    return gdn_explain(l->plan, l->job->n_u32, l->job->u32, &route) == GDN_OK && route.entry ? route.entry : "?";
}

bool gt_same_bytes(gt *t, const void *want, const void *got, uint64_t bytes, const char *what) {
    const uint8_t *a = want, *b = got;
    if (memcmp(a, b, bytes) == 0) return true;
    uint64_t i = 0, n = 0;
    while (a[i] == b[i]) i++;
    for (uint64_t k = i; k < bytes; k++) n += a[k] != b[k];
    return gt_check(t, false, "%s: %llu of %llu bytes differ, the first is byte %llu", what, (unsigned long long)n,
                    (unsigned long long)bytes, (unsigned long long)i);
}

/* Elements that both left poisoned count as equal; anything else must be close. */
static num_error error_of(const gt_buf *b, const uint8_t *want, const uint8_t *got, uint64_t *equal) {
    const uint32_t size = num_size(b->type);
    const uint64_t n = b->bytes / size;
    double *x = malloc(2 * n * sizeof *x), *y = x ? x + n : NULL;
    uint64_t used = 0;
    if (!x) abort();
    *equal = 0;
    for (uint64_t i = 0; i < n; i++) {
        const bool same = memcmp(want + i * size, got + i * size, size) == 0;
        const double w = num_get(want, b->type, i);
        *equal += same;
        if (same && isnan(w)) continue;
        x[used] = isnan(w) ? 1 : w; /* poison on one side only: the other is far from it */
        y[used++] = isnan(w) ? NAN : num_get(got, b->type, i);
    }
    const num_error e = num_compare(x, y, used);
    free(x);
    return e;
}

bool gt_same(gt *t, const gt_live *a, const gt_live *b, bool loud) {
    for (uint32_t i = 0; i < a->job->n_ptr; i++) {
        const gt_buf *o = &a->job->buf[i];
        if (!(o->role & GT_OUT) || !is_own(o)) continue;
        if (!a->got[i] || !b->got[i]) return loud ? gt_check(t, false, "output %u was not fetched", i) : false;
        if (o->tol == 0) {
            const bool same = memcmp(a->got[i], b->got[i], o->bytes) == 0;
            if (!same && loud) (void)gt_same_bytes(t, a->got[i], b->got[i], o->bytes, "output");
            if (!same) return false;
            continue;
        }
        uint64_t equal;
        const num_error e = error_of(o, a->got[i], b->got[i], &equal);
        const bool ok = e.finite && e.rms > 0 && e.rel_rms <= o->tol && e.rel_worst <= 200 * o->tol;
        if (loud && ok) {
            gt_figure(t, "rel_rms", e.rel_rms);
            gt_figure(t, "rel_worst", e.rel_worst);
            gt_figure(t, "equal_share", (double)equal / (double)(o->bytes / num_size(o->type)));
        }
        if (loud && !ok)
            (void)gt_check(t, false, "output %u: relative RMS %.3g, worst %.3g, bound %.3g, reference RMS %.3g, finite %d", i, e.rel_rms,
                           e.rel_worst, o->tol, e.rms, e.finite);
        if (!ok) return false;
    }
    return true;
}

/* Where the control changes something: the largest finite element, so that its sign is seen above any tolerance. */
static uint64_t largest(const gt_buf *o, const uint8_t *p) {
    const uint64_t n = o->bytes / num_size(o->type);
    uint64_t at = 0;
    double best = -1;
    for (uint64_t i = 0; i < n; i++) {
        const double x = fabs(num_get(p, o->type, i));
        if (isfinite(x) && x > best) best = x, at = i;
    }
    return at;
}

void gt_control(gt *t, const gt_live *want, gt_live *l) {
    for (uint32_t i = 0; i < l->job->n_ptr; i++) {
        const gt_buf *o = &l->job->buf[i];
        if (!(o->role & GT_OUT) || !is_own(o) || !l->got[i]) continue;
        const uint32_t size = o->tol == 0 ? 1 : num_size(o->type);
        const uint64_t at = o->tol == 0 ? o->bytes / 2 : largest(o, l->got[i]);
        uint8_t *byte = &l->got[i][(at + 1) * size - 1];
        const uint8_t flip = o->tol == 0 ? 1 : 0x80; /* the sign */
        *byte ^= flip;
        (void)gt_check(t, !gt_same(t, want, l, false), "control: a changed element of output %u is not noticed", i);
        *byte ^= flip;
    }
}

void gt_pair(gt *t, const gt_job *job) {
    gt_live ref, dev, again;
    if (gt_up(t, t->cpu, job, &ref) && gt_check(t, gt_launch(&ref, NULL) == GDN_OK, "the cpu target did not run it") &&
        gt_down(t, &ref, NULL) && gt_up(t, t->dev, job, &dev)) {
        const gdn_status st = gt_launch(&dev, NULL);
        if (gt_check(t, st == GDN_OK, "launch: %s", gdn_status_name(st)) && gt_down(t, &dev, NULL) && gt_same(t, &ref, &dev, true)) {
            again = dev;
            memset(again.got, 0, sizeof again.got);
            if (gt_fill(t, &again, NULL) && gt_check(t, gt_launch(&again, NULL) == GDN_OK, "second launch") && gt_down(t, &again, NULL)) {
                for (uint32_t i = 0; i < job->n_ptr; i++)
                    if (again.got[i]) (void)gt_same_bytes(t, dev.got[i], again.got[i], job->buf[i].bytes, "a second run");
                gt_control(t, &ref, &dev);
            }
        }
        gt_drop(&dev);
    }
    gt_drop(&ref);
}
