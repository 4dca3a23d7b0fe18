/* fake_graph.c - see fake_graph.h. */
#include "fake_graph.h"
#include "fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
enum { MAX_PARAMS = 64 };

typedef struct node {
    struct node *next;
    fake_work work;
    size_t bytes;
    _Alignas(16) unsigned char args[];
} node;

/* One that is counted: by the stream while it is captured, by the graph, by each instance. */
typedef struct list {
    node *first, **end;
    int refs;
} list;

typedef struct stream {
    fake_stream base; /* first: the driver's other calls see this */
    list *captured;
} stream;
enum { MAX_STREAMS = 64 };
static stream *made[MAX_STREAMS]; /* by cuStreamCreate */

static stream *own(const void *s) {
    for (size_t i = 0; s && i < MAX_STREAMS; i++)
        if (made[i] == s) return made[i];
    return NULL;
}

static void unref(list *l) {
    if (!l || --l->refs) return;
    while (l->first) {
        node *n = l->first;
        l->first = n->next;
        free(n);
    }
    free(l);
}

#define CALL(name)                                         \
    do {                                                   \
        const int answer_ = fake_begin(name);              \
        if (answer_) return answer_;                       \
        if (fake_device() < 0) return fake_violation(201); \
    } while (0)

int f_cuStreamCreate(void **out, unsigned flags) {
    CALL("cuStreamCreate");
    (void)flags;
    for (size_t i = 0; i < MAX_STREAMS; i++) {
        if (made[i]) continue;
        stream *s = calloc(1, sizeof *s);
        if (!s) return 2;
        s->base.device = fake_device();
        *out = made[i] = s;
        return 0;
    }
    return 2;
}

int f_cuStreamDestroy(void *s) {
    CALL("cuStreamDestroy");
    for (size_t i = 0; i < MAX_STREAMS; i++) {
        if (!s || made[i] != s) continue;
        unref(made[i]->captured);
        free(made[i]);
        made[i] = NULL;
        return 0;
    }
    return fake_violation(400);
}

int f_cuStreamBeginCapture(void *s, int mode) {
    CALL("cuStreamBeginCapture");
    stream *x = own(s);
    if (!x || x->captured || mode < 0 || mode > 2) return fake_violation(1);
    x->captured = calloc(1, sizeof *x->captured);
    if (!x->captured) return 2;
    x->captured->end = &x->captured->first;
    x->captured->refs = 1;
    x->base.capturing = 1;
    return 0;
}

int f_cuStreamEndCapture(void *s, void **graph) {
    CALL("cuStreamEndCapture");
    stream *x = own(s);
    if (!x || !x->captured) return fake_violation(1);
    *graph = x->captured;
    x->captured = NULL;
    x->base.capturing = 0;
    return 0;
}

int f_cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags) {
    CALL("cuGraphInstantiate");
    if (!graph || flags) return fake_violation(1);
    ((list *)graph)->refs++;
    *exec = graph;
    return 0;
}

int f_cuGraphLaunch(void *exec, void *s) {
    CALL("cuGraphLaunch");
    if (!exec || (s && ((fake_stream *)s)->capturing)) return fake_violation(1);
    int answer = 0;
    for (node *n = ((list *)exec)->first; n && !answer; n = n->next) answer = n->work(n->args);
    return answer;
}

int f_cuGraphExecDestroy(void *exec) {
    CALL("cuGraphExecDestroy");
    unref(exec);
    return 0;
}

int f_cuGraphDestroy(void *graph) {
    CALL("cuGraphDestroy");
    unref(graph);
    return 0;
}

EXPORT int fake_enqueue(void *s, fake_work work, const void *args, size_t bytes) {
    stream *x = own(s);
    node *n = malloc(sizeof *n + bytes);
    if (!n) return 2;
    *n = (node) { .work = work, .bytes = bytes };
    memcpy(n->args, args, bytes);
    if (x && x->captured) {
        *x->captured->end = n;
        x->captured->end = &n->next;
        return 0;
    }
    const int answer = s && ((fake_stream *)s)->capturing ? 0 : work(n->args);
    free(n);
    return answer;
}

int f_cuGraphGetNodes(void *graph, void **nodes, size_t *n) {
    CALL("cuGraphGetNodes");
    if (!graph || nodes) return fake_violation(1);
    *n = 0;
    for (const node *x = ((list *)graph)->first; x; x = x->next) ++*n;
    return 0;
}

/* ---- copies and events ---- */
typedef struct copying {
    uint64_t dst, src;
    size_t n;
} copying;
static int copy(void *args) {
    const copying *c = args;
    memmove((void *)(uintptr_t)c->dst, (const void *)(uintptr_t)c->src, c->n);
    return 0;
}
int f_cuMemcpyDtoDAsync(uint64_t dst, uint64_t src, size_t n, void *s) {
    CALL("cuMemcpyDtoDAsync");
    const copying c = { dst, src, n };
    return fake_enqueue(s, copy, &c, sizeof c);
}

int f_cuEventCreate(void **event, unsigned flags) {
    CALL("cuEventCreate");
    (void)flags;
    return (*event = calloc(1, sizeof(struct timespec))) ? 0 : 2;
}
int f_cuEventDestroy(void *event) {
    CALL("cuEventDestroy");
    free(event);
    return 0;
}
int f_cuEventRecord(void *event, void *s) {
    CALL("cuEventRecord");
    (void)s;
    return clock_gettime(CLOCK_MONOTONIC, event) == 0 ? 0 : 1;
}
int f_cuEventSynchronize(void *event) {
    CALL("cuEventSynchronize");
    return event ? 0 : 1;
}
int f_cuEventElapsedTime(float *ms, void *begin, void *end) {
    CALL("cuEventElapsedTime");
    const struct timespec *a = begin, *b = end;
    *ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return 0;
}

/* ---- kernels ---- */
typedef struct launch {
    const char *image; /* stays loaded as long as a graph uses it */
    char entry[96];
    unsigned grid[3], block[3], smem, n;
    unsigned offset[MAX_PARAMS];
    _Alignas(16) unsigned char values[4096];
} launch;

static int run(void *args) {
    launch *l = args;
    void *params[MAX_PARAMS];
    for (unsigned i = 0; i < l->n; i++) params[i] = l->values + l->offset[i];
    return emu_driver_run(l->image, l->entry, l->grid, l->block, l->smem, params);
}

int fake_launch(void *s, const char *image, const char *entry, const unsigned grid[3], const unsigned block[3], unsigned smem,
                void **params) {
    launch l = { .image = image, .smem = smem };
    const unsigned *sizes = NULL;
    size_t at = 0;
    if (!emu_driver_run || !emu_driver_sizes) return 0; /* no kernels: it was noted */
    if (!own(s) || !own(s)->captured)
        return s && ((fake_stream *)s)->capturing ? 0 : emu_driver_run(image, entry, grid, block, smem, params);
    (void)snprintf(l.entry, sizeof l.entry, "%s", entry);
    memcpy(l.grid, grid, sizeof l.grid);
    memcpy(l.block, block, sizeof l.block);
    l.n = emu_driver_sizes(image, entry, &sizes);
    if (l.n > MAX_PARAMS) return 1;
    for (unsigned i = 0; i < l.n; i++) {
        at = (at + 15) / 16 * 16;
        if (at + sizes[i] > sizeof l.values) return 1;
        memcpy(l.values + at, params[i], sizes[i]);
        l.offset[i] = (unsigned)at;
        at += sizes[i];
    }
    return fake_enqueue(s, run, &l, sizeof l);
}
