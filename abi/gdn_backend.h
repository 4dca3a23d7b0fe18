/* gdn_backend.h - where memory lives and how kernels are made and started. The host owns the table and lends it to plugins.
 *
 * There is one for host memory (no kernels: those entries are NULL) and one for the CUDA driver with NVRTC. Tests put a
 * mock in its place. Growth: append only, as in gdn_plugin.h. Entries are [any] unless marked; device addresses are
 * uint64_t, streams void *, and nothing of CUDA's headers appears here. */
#ifndef GDN_BACKEND_H
#define GDN_BACKEND_H

#include "gdn_status.h"

/* What is known of a device. Strings live as long as the backend. */
typedef struct gdn_device {
    uint32_t struct_size;
    int32_t ordinal;
    const char *name;
    uint32_t cc_major, cc_minor; /* compute capability; 0.0 for host memory         */
    uint32_t sm_count;           /* 0: cannot say                                   */
    uint32_t smem_optin;         /* bytes a block may ask for                       */
    uint64_t memory_bytes;
} gdn_device;

/* One source to compile. Everything is borrowed for the call. */
typedef struct gdn_compile_job {
    uint32_t struct_size;
    uint32_t n_headers;
    const char *name; /* "gated_delta_rule_fla.cu"                  */
    const char *source;
    const char *const *header_names;
    const char *const *headers;
    const char *const *options; /* n_options, without the architecture        */
    const char *arch;           /* "sm_90a", exact: never a lower one, never PTX */
    uint32_t n_options;
    uint32_t pad_;
} gdn_compile_job;

/* Geometry of one launch. */
typedef struct gdn_dims {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t smem_bytes; /* dynamic shared memory of a block */
    uint32_t pad_;
} gdn_dims;

typedef struct gdn_backend {
    uint32_t struct_size;
    uint32_t abi_minor;
    const char *name; /* "host", "cuda", "mock" */
    void *user;       /* first argument of every entry */

    /* How many devices there are; 0 is an answer, not an error. */
    gdn_status (*device_count)(void *user, uint32_t *out);
    gdn_status (*device)(void *user, int32_t ordinal, gdn_device *out);

    /* Memory of device `ordinal`, aligned to 256 bytes. [nocap] free accepts 0. */
    gdn_status (*mem_alloc)(void *user, int32_t ordinal, uint64_t bytes, uint64_t *out);
    void (*mem_free)(void *user, int32_t ordinal, uint64_t ptr);
    /* Ordered on the stream; copy_out returns when the bytes are there. */
    gdn_status (*copy_in)(void *user, int32_t ordinal, void *stream, uint64_t dst, const void *src, uint64_t bytes);
    gdn_status (*copy_out)(void *user, int32_t ordinal, void *stream, void *dst, uint64_t src, uint64_t bytes);
    gdn_status (*fill)(void *user, int32_t ordinal, void *stream, uint64_t dst, uint32_t byte, uint64_t bytes);
    gdn_status (*sync)(void *user, int32_t ordinal, void *stream);

    /* Kernels; NULL on the host backend. [nocap] all but launch, launch_early and capturing. */
    /* Takes n modules from the cache or compiles them, as many at a time as the machine has cores, and loads them. One that
     * fails does not stop the others: status[i], modules[i] (NULL then) and, when err is not NULL, the reason in err[i]. Answers
     * the first failing status. The host reports progress through its log. */
    gdn_status (*modules_load)(void *user, int32_t ordinal, uint32_t n, const gdn_compile_job *jobs, void **modules, gdn_status *status,
                               gdn_text *err);
    void (*module_unload)(void *user, int32_t ordinal, void *module);
    gdn_status (*function)(void *user, void *module, const char *entry, void **out);
    gdn_status (*set_smem)(void *user, void *function, uint32_t bytes);
    gdn_status (*capturing)(void *user, int32_t ordinal, void *stream, uint32_t *out);
    gdn_status (*launch)(void *user, void *function, const gdn_dims *dims, void *stream, void **params);
    /* launch of a kernel that itself waits (griddepcontrol.wait) for the one in front of it on the stream before it needs or changes
     * anything in memory: it may be started while that one still runs, which hides the start. Where the device (below compute capability
     * 9.0) or driver (below 12.3) cannot, this is launch. Since 0.4; may be NULL. */
    gdn_status (*launch_early)(void *user, void *function, const gdn_dims *dims, void *stream, void **params);
} gdn_backend;

#endif
