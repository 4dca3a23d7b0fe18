/* gdn_cubins.h - compiled kernels as files: make them ahead of time, look after the cache. Part of libgdn; needs no device.
 *
 * A folder filled by gdn_compile_ahead() is found through GDN_CUBIN_DIR, or as <datadir>/gdn/cubins, before NVRTC is opened.
 * Files: <folder>/<2 digits>/<key>.cubin, raw, and <key>.ini beside it. */
#ifndef GDN_CUBINS_H
#define GDN_CUBINS_H

#include "gdn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GDN_COMPILE_USAGE = 1 /* registers and spills, from a second compile whose code is thrown away */ };

typedef struct gdn_compile_row {
    uint32_t struct_size;
    int32_t status; /* GDN_OK: the file is there             */
    const char *target, *module, *arch;
    const char *file;   /* NULL when it failed                   */
    const char *reason; /* with the compiler's log; NULL when not */
    const char *usage;  /* a line for each entry; NULL unless asked for */
    uint64_t bytes;
    uint64_t kept; /* 1: the folder had it already, made by this NVRTC */
    double ms;
    const char *defines; /* " -DX -DY": tell a build from others of the same module; "" when there are none */
} gdn_compile_row;

/* [any] Compiles every module of a target for one architecture into a folder, which is made if its parent is there. The target
 * is opt->target. A module is in the folder, whole, as soon as it is compiled. Called at the end for each module in order; strings live
 * for the call. GDN_ABSENT: the target has no modules, or none for that architecture, or gdn_compile_stop; err says so. Else the first
 * failing module's status. */
GDN_API gdn_status gdn_compile_ahead(const gdn_options *opt, const char *arch, const char *folder, uint32_t flags,
                                     void (*each)(void *user, const gdn_compile_row *row), void *user, gdn_text *err);

/* [any], and from a signal handler: from now on both functions begin no compile, finish those that run, write them, and answer
 * GDN_ABSENT. There are no rows for what was not begun. */
GDN_API void gdn_compile_stop(void);

/* [any] The same for modules of the caller's own, what an engine gives to gdn_backend_of()'s modules_load: found there likewise. All are
 * for one architecture; owner stands for the target in the rows. */
GDN_API gdn_status gdn_compile_jobs(const gdn_options *opt, const char *owner, uint32_t n, const gdn_compile_job *jobs, const char *folder,
                                    uint32_t flags, void (*each)(void *user, const gdn_compile_row *row), void *user, gdn_text *err);

typedef struct gdn_cache_row {
    uint32_t struct_size;
    int32_t status; /* GDN_OK; GDN_E_IO: damaged; GDN_ABSENT: without its side file, being written or left over */
    const char *file;
    const char *module, *arch, *nvrtc, *options; /* "" when not known */
    const char *reason;                          /* NULL when status is GDN_OK */
    uint64_t bytes;
    uint64_t compiled;  /* seconds since 1970 */
    uint64_t used;      /* likewise           */
    uint64_t set_aside; /* 1: the driver refused it, it is not used */
    double ms;          /* that its compile took */
} gdn_cache_row;
typedef struct gdn_cache_sums {
    uint32_t struct_size;
    uint32_t writable;
    uint64_t entries, bytes; /* that are there (after a prune: still) */
    uint64_t removed, removed_bytes;
    uint64_t max_bytes;
} gdn_cache_sums;

/* [any] Every entry of the cache, read and verified. folder gets its place. GDN_E_IO: there is no cache that can be used. */
GDN_API gdn_status gdn_cache_each(void (*each)(void *user, const gdn_cache_row *row), void *user, gdn_cache_sums *sums, gdn_text *folder,
                                  gdn_text *err);
/* [any] Removes what is damaged, set aside or left over, then the entries used longest ago until max_bytes hold
 * (UINT64_MAX: GDN_CACHE_MAX_MIB). */
GDN_API gdn_status gdn_cache_prune(uint64_t max_bytes, gdn_cache_sums *sums, gdn_text *folder, gdn_text *err);

#ifdef __cplusplus
}
#endif
#endif
