/* gpu_clock.h - times work on a CUDA device: streams, events, graphs of many launches. For `gdn bench` and tests/gpu.
 *
 * The driver is opened at run time through own declarations, as in host/cuda_driver.h; nothing of a toolkit is needed. Handles of
 * the driver are void *. A clock has the device's primary context, the one that libgdn uses, and pushes it for the thread that
 * opened it until it is closed; other threads use gpu_clock_enter and gpu_clock_leave.
 *
 *     us of a call = (elapsed between two events round one replay) / (calls in the graph)
 *
 * Every function that answers bool has put a line into clock->why when it answers false. */
#ifndef GDN_CLI_GPU_CLOCK_H
#define GDN_CLI_GPU_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, exported symbol, parameters) */
#define GPU_CLOCK_MAP(X)                                                                                                          \
    X(init, "cuInit", (unsigned flags))                                                                                           \
    X(version, "cuDriverGetVersion", (int *version))                                                                              \
    X(error_name, "cuGetErrorName", (int error, const char **text))                                                               \
    X(device_get, "cuDeviceGet", (int *device, int ordinal))                                                                      \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                                          \
    X(ctx_retain, "cuDevicePrimaryCtxRetain", (void **ctx, int device))                                                           \
    X(ctx_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                                                  \
    X(ctx_push, "cuCtxPushCurrent_v2", (void *ctx))                                                                               \
    X(ctx_pop, "cuCtxPopCurrent_v2", (void **ctx))                                                                                \
    X(stream_create, "cuStreamCreate", (void **stream, unsigned flags))                                                           \
    X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                                                       \
    X(stream_sync, "cuStreamSynchronize", (void *stream))                                                                         \
    X(capture_begin, "cuStreamBeginCapture_v2", (void *stream, int mode))                                                         \
    X(capture_end, "cuStreamEndCapture", (void *stream, void **graph))                                                            \
    X(graph_nodes, "cuGraphGetNodes", (void *graph, void **nodes, size_t *n))                                                     \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **exec, void *graph, unsigned long long flags))                     \
    X(graph_launch, "cuGraphLaunch", (void *exec, void *stream))                                                                  \
    X(exec_destroy, "cuGraphExecDestroy", (void *exec))                                                                           \
    X(graph_destroy, "cuGraphDestroy", (void *graph))                                                                             \
    X(event_create, "cuEventCreate", (void **event, unsigned flags))                                                              \
    X(event_destroy, "cuEventDestroy_v2", (void *event))                                                                          \
    X(event_record, "cuEventRecord", (void *event, void *stream))                                                                 \
    X(event_sync, "cuEventSynchronize", (void *event))                                                                            \
    X(event_elapsed, "cuEventElapsedTime", (float *ms, void *begin, void *end))                                                   \
    X(copy_dtod, "cuMemcpyDtoDAsync_v2", (uint64_t dst, uint64_t src, size_t bytes, void *stream))                                \
    X(module_load, "cuModuleLoadData", (void **module, const void *image))                                                        \
    X(module_unload, "cuModuleUnload", (void *module))                                                                            \
    X(module_function, "cuModuleGetFunction", (void **function, void *module, const char *name))                                  \
    X(function_set, "cuFuncSetAttribute", (void *function, int attribute, int value))                                             \
    X(launch, "cuLaunchKernel",                                                                                                   \
      (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem, void *stream, \
       void **params, void **extra))

typedef struct gpu_clock {
#define GPU_CLOCK_FIELD_(name, symbol, params) int(*name) params;
    GPU_CLOCK_MAP(GPU_CLOCK_FIELD_)
#undef GPU_CLOCK_FIELD_
    void *library, *ctx, *stream; /* stream: non-blocking, used by gpu_clock_time */
    void *begin, *end;            /* events */
    int device, driver;           /* driver: 13000 is CUDA 13.0 */
    int cc_major, cc_minor, sm_count;
    uint64_t l2_bytes;
    char why[256];
} gpu_clock;

enum { GPU_CAPTURE_GLOBAL = 0, GPU_CAPTURE_THREAD = 1, GPU_CAPTURE_RELAXED = 2 };

bool gpu_clock_open(gpu_clock *c, int ordinal); /* on failure nothing is kept; why says what is missing */
void gpu_clock_close(gpu_clock *c);             /* one that was not opened is ignored */
bool gpu_clock_enter(gpu_clock *c);
void gpu_clock_leave(gpu_clock *c);
/* A CUresult as bool; names the call and the error in why. Not for several threads at once. */
bool gpu_ok(gpu_clock *c, int result, const char *call);

void *gpu_stream(gpu_clock *c, bool non_blocking); /* NULL: failed */
void gpu_stream_free(gpu_clock *c, void *stream);
bool gpu_sync(gpu_clock *c, void *stream);

/* A captured graph, ready to be launched. */
typedef struct gpu_graph {
    void *graph, *exec;
    size_t nodes;
} gpu_graph;
bool gpu_capture_begin(gpu_clock *c, void *stream, int mode);
/* Ends the capture also when it was spoiled; false then, and nothing is kept. */
bool gpu_capture_end(gpu_clock *c, void *stream, gpu_graph *out);
bool gpu_graph_go(gpu_clock *c, const gpu_graph *g, void *stream);
void gpu_graph_free(gpu_clock *c, gpu_graph *g);

/* Enqueues call number i on the stream. false: it did not go (and the run is given up). */
typedef bool (*gpu_work)(void *user, uint32_t i, void *stream);
typedef struct gpu_times {
    double us_median, us_p10, us_p90, us_best; /* of one call */
    uint32_t calls, replays;
} gpu_times;
enum { GPU_MAX_REPLAYS = 64 };
/* Captures `calls` calls in one graph, replays it twice unseen and `replays` times timed. */
bool gpu_clock_time(gpu_clock *c, gpu_work work, void *user, uint32_t calls, uint32_t replays, gpu_times *out);
/* How many calls make a graph of about `us` microseconds, from a first short measurement; between lo and hi. 0: failed. */
uint32_t gpu_clock_calls(gpu_clock *c, gpu_work work, void *user, double us, uint32_t lo, uint32_t hi);
/* The same without a graph, for libraries that cannot be captured: `calls` launches between two events. */
bool gpu_clock_plain(gpu_clock *c, gpu_work work, void *user, uint32_t calls, uint32_t replays, gpu_times *out);

/* ---- gpu_jit.c: a kernel of one's own, compiled for the clock's device ---- */
typedef struct gpu_kernel {
    void *module, *function;
} gpu_kernel;
/* GDN_NVRTC, else libnvrtc.so.13, .12. false: no NVRTC, or the source did not compile; why says which. */
bool gpu_kernel_make(gpu_clock *c, const char *source, const char *entry, gpu_kernel *out);
void gpu_kernel_free(gpu_clock *c, gpu_kernel *k);
/* A module out of a plugin's list (abi/gdn_modules.h), for the clock's device whatever the job says, with one option more. */
struct gdn_compile_job;
bool gpu_module_make(gpu_clock *c, const struct gdn_compile_job *job, const char *option, void **module);
bool gpu_kernel_go(gpu_clock *c, const gpu_kernel *k, uint32_t grid, uint32_t block, void *stream, void **params);
/* "13.0 (/path/to/libnvrtc.so.13)", or why there is none. */
void gpu_nvrtc_text(char *buf, size_t cap);

#endif
