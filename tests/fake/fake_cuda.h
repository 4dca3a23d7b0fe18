/* fake_cuda.h - a driver and an NVRTC without a GPU: what a test sets, and what it reads back.
 *
 * Both are small shared objects that the tests open by path. A device is a number, a context an address, memory is host memory.
 * An image is what the fake NVRTC makes: "\x7f" "ELF", four bytes, then "<arch> <source>", a comment with the options, and a NUL. It is
 * refused when its arch is not that of the current context's device, or when its source says REFUSE. An entry is found when its name and
 * '(' are in the source. */
#ifndef GDN_FAKE_CUDA_H
#define GDN_FAKE_CUDA_H

#include <stdint.h>

enum { FAKE_DEVICES = 2, FAKE_TRAIL = 1 << 16 };

typedef struct fake_stream {
    int device;
    int capturing; /* CUstreamCaptureStatus */
} fake_stream;

typedef struct fake_cuda {
    /* set by the test */
    int devices, cc[FAKE_DEVICES];
    int init_error, lookup_error; /* what cuInit, and cuGetProcAddress for any name, answer */
    const char *missing;          /* a symbol that cuGetProcAddress does not know */
    int no_library;               /* the optional entries are not there           */
    _Atomic int fail_at;          /* the n-th call (from 1) fails; 0: none        */
    int fail_with;
    int sticky;               /* every call answers this                      */
    int implicit;             /* a blocking stream captures: the legacy stream answers 906 */
    _Atomic int unload_error; /* of the next unload                           */
    _Atomic int refuse_next;  /* the next image is refused with this          */
    /* read by the test */
    _Atomic int calls; /* all but the error texts                      */
    _Atomic int allocs, modules, libraries, retained[FAKE_DEVICES];
    _Atomic int violations; /* a call without a context, a wrong device, a pop of nothing, a call that a capture forbids */
    _Atomic int launches, launched_on;
    unsigned grid[3], block[3], smem;
    void *launch_stream, **launch_params;
    _Atomic int logs_given; /* loads that came with both log buffers        */
    _Atomic int func_loads; /* cuFuncLoad                                   */
    _Atomic int attribute;  /* last value set                               */
    char trail[FAKE_TRAIL]; /* names of all calls, a blank behind each    */
} fake_cuda;
typedef fake_cuda *(*fake_cuda_fn)(void);
fake_cuda *fake_cuda_state(void); /* resets nothing */
void *fake_cuda_context(int device);
typedef void *(*fake_cuda_context_fn)(int device);
/* The context stack of the calling thread. */
void *fake_cuda_current(void);
void fake_cuda_set_current(void *ctx);
typedef void *(*fake_cuda_current_fn)(void);
typedef void (*fake_cuda_set_fn)(void *ctx);

typedef struct fake_nvrtc {
    int builtins_missing;
    int sleep_ms; /* how long a compile takes */
    _Atomic int compiles, live, running, most_running;
    char options[1024]; /* of the last compile, a blank behind each */
} fake_nvrtc;
typedef fake_nvrtc *(*fake_nvrtc_fn)(void);
fake_nvrtc *fake_nvrtc_state(void);

#endif
