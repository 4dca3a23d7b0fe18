/* fake_graph.h - streams, capture and graphs of the fake driver.
 *
 * A stream made by cuStreamCreate may be captured; what is enqueued on it meanwhile is kept, not run, and runs at every launch of the
 * graph. Streams that a test makes itself are only marked as capturing: what is enqueued on them is noted and dropped. */
#ifndef GDN_FAKE_GRAPH_H
#define GDN_FAKE_GRAPH_H

#include <stddef.h>
#include <stdint.h>

/* ---- of fake_cuda.c ---- */
int fake_begin(const char *name); /* notes the call; not 0: what it must answer */
int fake_device(void);            /* of the current context; -1: none           */
int fake_violation(int answer);

/* ---- of fake_graph.c ---- */
/* A piece of work; args are copied. Kept when the stream is being captured, else run now; the answer of that run. */
typedef int (*fake_work)(void *args);
int fake_enqueue(void *stream, fake_work work, const void *args, size_t bytes);
int fake_launch(void *stream, const char *image, const char *entry, const unsigned grid[3], const unsigned block[3], unsigned smem,
                void **params);
int f_cuStreamCreate(void **stream, unsigned flags);
int f_cuStreamDestroy(void *stream);
int f_cuStreamBeginCapture(void *stream, int mode);
int f_cuStreamEndCapture(void *stream, void **graph);
int f_cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags);
int f_cuGraphLaunch(void *exec, void *stream);
int f_cuGraphExecDestroy(void *exec);
int f_cuGraphDestroy(void *graph);
int f_cuGraphGetNodes(void *graph, void **nodes, size_t *n); /* nodes NULL: how many */
int f_cuMemcpyDtoDAsync(uint64_t dst, uint64_t src, size_t n, void *stream);
/* Events are moments of the host's clock: work is done when it has been enqueued. */
int f_cuEventCreate(void **event, unsigned flags);
int f_cuEventDestroy(void *event);
int f_cuEventRecord(void *event, void *stream);
int f_cuEventSynchronize(void *event);
int f_cuEventElapsedTime(float *ms, void *begin, void *end);

/* Runs a kernel (tests/emu/driver), and says the sizes of its parameters. Not there: images hold text. */
int emu_driver_run(const char *image, const char *entry, const unsigned grid[3], const unsigned block[3], unsigned smem, void **params)
    __attribute__((weak));
unsigned emu_driver_sizes(const char *image, const char *entry, const unsigned **sizes) __attribute__((weak));

#endif
