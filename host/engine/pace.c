/* pace.c - steps in all threads or in one, by what they cost. */
#include "pace.h"
#include <omp.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The mean of the last few: one step that was interrupted is not yet a reason. */
static double blend(double cost, double seconds) {
    return cost > 0 ? 0.75 * cost + 0.25 * seconds : seconds;
}

void gdn__pace_took(gdn__pace *p, double seconds) {
    if (!p->threaded) {
        if (!p->pause) {
            p->pause = GDN__PACE_PAUSE;
            p->left = GDN__PACE_FIRST;
        }
        p->alone = blend(p->alone, seconds);
        p->threaded = --p->left == 0;
        p->threads = 0;
        p->good = 0;
        return;
    }
    p->threads = blend(p->threads, seconds);
    if (p->threads > p->alone) {
        p->threaded = false;
        p->left = p->pause;
        if (p->pause < GDN__PACE_LONGEST) p->pause *= 2;
    } else if (++p->good == GDN__PACE_GOOD) {
        p->pause = GDN__PACE_PAUSE;
    }
}

void gdn__pace_begin(gdn__pace *p) {
    const int all = omp_get_max_threads();
    p->limit = 0;
    if (all > 1 && !p->threaded) {
        p->limit = all;
        omp_set_num_threads(1);
    }
    p->began = now();
}

void gdn__pace_end(gdn__pace *p, bool step) {
    const double seconds = now() - p->began;
    if (p->limit) omp_set_num_threads(p->limit);
    if (step && (p->limit || p->threaded)) gdn__pace_took(p, seconds);
}
