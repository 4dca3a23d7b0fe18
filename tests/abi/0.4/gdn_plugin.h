/* gdn_plugin.h - the whole contract between the host library and a target's plugin.
 *
 * A plugin exports ONE symbol, gdn_plugin_query(); all else hangs off the const tables it returns. Only <stddef.h> and
 * <stdint.h> are needed: a stream is a void *, a device pointer a uint64_t.
 *
 * Growth: append at the end and add 1 to GDN_ABI_MINOR (docs/abi.md has the history). Never reorder, retype or reuse.
 * Every struct is a multiple of 8 bytes without hidden padding, so that a longer struct always has a larger struct_size.
 * A table that comes in is read up to the smaller of both sizes, the rest is zero; a struct that goes out is filled likewise
 * and its struct_size set to what was filled. A reader asks with GDN_HAS, never with ==. A shape, or a launch's array, that is
 * longer than the plugin knows is taken when all that it does not know is zero, and refused (GDN_E_ABI) when it is not: no
 * request is ignored. A gdn_launch_args must reach `u32`, a gdn_route `guard`.
 *
 * Tags:  [any]   any thread, concurrently         [cap]   legal while a stream is capturing
 *        [ctx]   caller serialises per context    [nocap] answers GDN_E_CAPTURE instead, before any driver call
 * Strings that a plugin returns live as long as it is mapped; strings handed to it are copied if they are kept.
 * A plugin never aborts, prints, or keeps thread-local state; what it makes, it destroys. */
#ifndef GDN_PLUGIN_H
#define GDN_PLUGIN_H

#include "gdn_backend.h"
#include "gdn_ops.h"
#include "gdn_status.h"

#define GDN_ABI_MAGIC 0x314e4447u /* "GDN1", read as little endian           */
#define GDN_ABI_MAJOR 0u          /* changes only if old plugins must stop   */
#define GDN_ABI_MINOR 4u          /* +1 for every append                     */

/* ---- opaque handles: only the side that made one may destroy it ---- */
typedef struct gdn_ctx gdn_ctx;   /* one device of one process                */
typedef struct gdn_plan gdn_plan; /* candidates bound, sizes known; immutable */

/* ---- what the host lends to the plugin ---- */
enum { GDN_LOG_ERROR = 1, GDN_LOG_WARN = 2, GDN_LOG_INFO = 3, GDN_LOG_DEBUG = 4, GDN_LOG_HOST_BUG = 5 /* the caller broke a rule */ };
enum { GDN_FROM_BUILTIN = 0, GDN_FROM_CONF = 1, GDN_FROM_ENV = 2, GDN_FROM_API = 3 };

typedef struct gdn_lever {
    uint32_t struct_size;
    uint32_t source;   /* GDN_FROM_*                                           */
    const char *value; /* as the lever's grammar normalises it; "true"/"false" for toggles and switches; host-owned until fini */
    const char *where; /* "hopper.ini:12", "METRALE_GDN_PIPE", ...; never NULL  */
} gdn_lever;

/* Slots of `once`: one flag each per process, kept across swaps. */
enum { GDN_ONCE_BA_GATES = 0 /* 7: the six guards, then the twin */, GDN_ONCE_WOA = 8 /* 8 */, GDN_ONCE_SLOTS = 64 };

typedef struct gdn_host {
    uint32_t struct_size;
    uint32_t abi_minor;
    void *user;
    /* [any][cap] msg: one finished UTF-8 line without newline, copied at once. Never NULL. */
    void (*log)(void *user, uint32_t severity, const char *area, const char *msg);
    /* [any][cap] GDN_OK and *out (whose struct_size is set), or GDN_ABSENT when the key is not set. */
    gdn_status (*lever)(void *user, const char *key, gdn_lever *out);
    /* [any][cap] 1 the first time a process asks for this slot, then 0. */
    uint32_t (*once)(void *user, uint32_t slot);
    const gdn_backend *backend; /* outlives every context */
} gdn_host;

/* ---- questions and answers ---- */
/* A kernel that was asked for and declined. */
typedef struct gdn_refusal {
    const char *lever; /* key that asked for it, else NULL */
    const char *guard; /* first guard of it that declined  */
} gdn_refusal;
enum { GDN_ROUTE_REFUSALS = 4 };

typedef struct gdn_route { /* what would run, and why */
    uint32_t struct_size;
    uint32_t chosen;         /* 1 the requested kernel, 0 its fallback (or nothing: entry NULL)  */
    const char *entry;       /* the very string the kernel was bound with                        */
    const char *guard;       /* first guard that declined the requested kernel, else NULL; where several
                              * were requested, of the last of them: refused has all                */
    const char *lever;       /* key that decided, else NULL                                      */
    const char *lever_where; /* where its value comes from, else NULL                            */
    uint32_t lever_source;   /* GDN_FROM_*                                                       */
    uint32_t smem_bytes;
    uint32_t grid[3];
    uint32_t block[3];
    uint64_t workspace_bytes; /* that a launch's workspace pointer must hold                      */
    uint32_t n_refused;       /* since 0.2: kernels asked for and declined, in the order of asking   */
    uint32_t split_tokens;    /* since 0.2: prefill: cut at multiples of so many tokens, the same bytes  */
    gdn_refusal refused[GDN_ROUTE_REFUSALS];
} gdn_route;

/* Orders of ptr and u32: gdn_op_*.h. Both are borrowed for the call only. */
typedef struct gdn_launch_args {
    uint32_t struct_size;
    uint32_t n_ptr;
    uint32_t n_u32;
    uint32_t flags; /* must be 0 */
    void *stream;   /* CUstream; the cpu target runs in the calling thread and does not look at it */
    const uint64_t *ptr;
    const uint32_t *u32;
} gdn_launch_args;

/* Launches per entry, and refusals per guard, since the context was made. */
typedef struct gdn_counter {
    const char *name; /* an entry, or a guard's text */
    uint64_t count;
    uint32_t op;      /* GDN_OP_*                    */
    uint32_t refused; /* 1: name is a guard          */
} gdn_counter;

/* ---- the table ---- */
typedef struct gdn_vtable {
    uint32_t struct_size;
    uint32_t abi_minor;

    /* [any][nocap] Mandatory. Read levers, open device `ordinal`. On failure *out is NULL and err (may be NULL) says why. */
    gdn_status (*init)(const gdn_host *host, int32_t ordinal, gdn_ctx **out, gdn_text *err);
    /* [ctx][nocap] Mandatory. All plans must be gone. NULL is ignored. */
    void (*fini)(gdn_ctx *ctx);
    /* [ctx][nocap] Mandatory. For the shape's maxima: bind every candidate, compile, load, set attributes, size the
     * workspace. The stream is only asked whether it is capturing; NULL skips the question. GDN_REFUSED and GDN_ABSENT
     * leave *out NULL and err names the guard. */
    gdn_status (*plan)(gdn_ctx *ctx, const gdn_shape *shape, void *stream, gdn_plan **out, gdn_text *err);
    /* [any][nocap] Mandatory. NULL is ignored. */
    void (*destroy)(gdn_plan *plan);
    /* [any][cap] Mandatory. Enqueue (cpu: run): no allocation, lookup, lock, compile or synchronisation. Arguments are
     * checked first; an error means that nothing was written, and one log line says what is wrong. */
    gdn_status (*launch)(const gdn_plan *plan, const gdn_launch_args *args);
    /* [any][cap] Mandatory. What launch would do with these counts (n_u32 0: with the maxima); GDN_E_ARG when launch
     * would refuse them as above a maximum. It knows no pointers: where their alignment keeps a kernel back, launch takes the
     * next route, counts that guard and logs it. Pure. */
    gdn_status (*explain)(const gdn_plan *plan, uint32_t n_u32, const uint32_t *u32, gdn_route *out);
    /* [any][cap] Optional. The same answer without a device or context; sm_count 0: not known. */
    gdn_status (*route)(const gdn_host *host, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32,
                        gdn_route *out, gdn_text *err);
    /* [any][cap] Optional. Fills at most cap counters, *n is how many there are. */
    gdn_status (*counters)(const gdn_ctx *ctx, gdn_counter *out, uint32_t cap, uint32_t *n);
    /* [any][cap] Optional. Add-on table such as "gdn.timing/1", or NULL. */
    const void *(*extension)(const char *id);
    /* [any][cap] Optional, since 0.2. As route, but on the context's own device with what has been loaded for it: ABSENT where plan would
     * be. sm_count 0: the device's. */
    gdn_status (*route_on)(const gdn_ctx *ctx, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32,
                           gdn_route *out, gdn_text *err);
} gdn_vtable;

/* ---- identity: the first four words never move in any major version ---- */
enum {
    GDN_F_REFERENCE = 1,  /* the oracle for the others                                                            */
    GDN_F_UNLOADABLE = 2, /* no thread, TLS or atexit of its own: dlclose is legal                                */
    GDN_F_PORTABLE = 4    /* its portable kernels also run on other GPUs, of 8.0 and later, when asked for by name */
};

typedef struct gdn_plugin {
    uint32_t magic;
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    const char *target;    /* "cpu"; must equal the name asked for      */
    const char *version;   /* release of this plugin                    */
    const char *build_id;  /* hash of its sources and flags             */
    const char *sanitizer; /* "none", "address", "thread"               */
    const char *archs;     /* "sm_90a", "sm_121f", comma list; "" = cpu */
    uint64_t flags;        /* GDN_F_*                                   */
    const gdn_vtable *ops;
} gdn_plugin;

#if defined(GDN_BUILDING_PLUGIN)
#define GDN_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define GDN_PLUGIN_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif
/* [any][cap] Pure: no driver call, file, thread or log line. NULL when the plugin has no table for host_major. */
GDN_PLUGIN_EXPORT const gdn_plugin *gdn_plugin_query(uint32_t host_major, uint32_t host_minor);
#ifdef __cplusplus
}
#endif
typedef const gdn_plugin *(*gdn_plugin_query_fn)(uint32_t host_major, uint32_t host_minor);

#endif
