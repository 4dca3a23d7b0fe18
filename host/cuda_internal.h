/* cuda_internal.h - what the files of the CUDA backend share.
 *
 *   cuda_driver.c   libcuda.so.1                cuda_context.c  fork guard, primary contexts, errors
 *   cuda_memory.c   memory, copies, streams     cuda_module.c   modules on and off a device
 *   cuda_function.c functions, launch           cuda_arch.c     architecture names
 *   cuda_backend.c  the table, open, close, probe */
#ifndef GDN_CUDA_INTERNAL_H
#define GDN_CUDA_INTERNAL_H

#include "cuda_backend.h"
#include "cuda_driver.h"
#include "nvrtc_jit.h"
#include <unistd.h>

typedef struct gdn__cuda gdn__cuda;

typedef struct gdn__cuda_device {
    gdn_device info;
    char name[128];
    int handle; /* CUdevice */
    void *ctx;  /* primary context; NULL until the device is used. Guarded by the backend's mutex. */
} gdn__cuda_device;

typedef struct gdn__cuda_function {
    struct gdn__cuda_function *next;
    struct gdn__cuda_module *module;
    void *ctx, *fn;
    _Atomic int last_error; /* of a launch: told when it changes */
    char entry[];
} gdn__cuda_function;

typedef struct gdn__cuda_module {
    struct gdn__cuda_module *next;
    gdn__cuda_device *dev;
    void *library; /* CUlibrary, or NULL when the driver has none */
    void *module;
    gdn__cuda_function *functions;
    bool dead; /* to be unloaded when no capture is in the way */
    char name[];
} gdn__cuda_module;

struct gdn__cuda {
    gdn_backend table; /* first: what is handed out is its address */
    gdn__cuda_api api;
    gdn__log log;
    const uint32_t *alive; /* a page that the kernel clears in a forked child */
    pid_t pid;             /* where it cannot: the process; else 0 */
    bool early;            /* the driver starts kernels early and lets graphs keep it */
    uint32_t n;
    gdn__cuda_device *dev;
    pthread_mutex_t mutex; /* contexts, the list of modules, their functions */
    gdn__cuda_module *modules;
    gdn__jit jit;
};

/* ---- cuda_context.c ---- */
extern _Atomic bool gdn__cuda_no_wipe; /* as on a kernel without MADV_WIPEONFORK; only tests write it */
gdn_status gdn__cuda_guard_make(gdn__cuda *cu, gdn_text *err);
void gdn__cuda_guard_drop(gdn__cuda *cu);
/* false in a child of fork: nothing of the driver may be touched there. */
static inline bool gdn__cuda_alive(const gdn__cuda *cu) {
    return *cu->alive != 0 && (!cu->pid || cu->pid == getpid());
}

/* GDN_OK, or the status of a failed call, told with its name: to err if there is one, else to the log. */
gdn_status gdn__cuda_check(const gdn__cuda *cu, gdn__cu_result r, const char *call, gdn_text *err);

/* One entry of the table: fork guard, the device's primary context made current, capture mode relaxed if asked. */
typedef struct gdn__cuda_scope {
    const gdn__cuda *cu;
    gdn__cuda_device *dev;
    int mode;
    bool relaxed;
} gdn__cuda_scope;
/* GDN_E_FORKED, GDN_E_ARG for a device that is not there, or what the driver said; then nothing is to be left. relaxed: another
 * thread may be capturing in global mode, which would forbid calls that do not belong to its capture. */
gdn_status gdn__cuda_enter(gdn__cuda *cu, int32_t ordinal, bool relaxed, gdn__cuda_scope *scope, gdn_text *err);
void gdn__cuda_leave(gdn__cuda_scope *scope);
/* Within a scope: GDN_E_CAPTURE when the stream is capturing. The question itself never harms a capture. */
gdn_status gdn__cuda_not_capturing(const gdn__cuda *cu, void *stream);

/* ---- cuda_memory.c, cuda_module.c, cuda_function.c: entries of the table ---- */
void gdn__cuda_memory_entries(gdn_backend *table);
void gdn__cuda_function_entries(gdn_backend *table);
void gdn__cuda_module_entries(gdn_backend *table);
/* Unloads every module, whatever is still held of it. */
void gdn__cuda_modules_drop(gdn__cuda *cu);

#endif
