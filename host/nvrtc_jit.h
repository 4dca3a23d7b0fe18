/* nvrtc_jit.h - sources to cubins: shipped folder, cache, then NVRTC, several at a time. Needs no device.
 *
 * Order of places for a module: GDN_CUBIN_DIR, the installed folder, this process's memory, the cache under the NVRTC last
 * used, the cache under the NVRTC that opens, a compile; when no NVRTC opens, the cache under any other NVRTC. NVRTC is
 * opened at the first miss and not before. */
#ifndef GDN_NVRTC_JIT_H
#define GDN_NVRTC_JIT_H

#include "nvrtc_compile.h"
#include <pthread.h>

typedef struct gdn__jit_note { /* remembered for the life of the backend */
    struct gdn__jit_note *next;
    gdn__key key;      /* content key, as of shipped cubins */
    gdn_status status; /* GDN_OK: data is a cubin that no folder could take; else why holds the failure */
    char *why;
    void *data;
    size_t size;
} gdn__jit_note;

typedef struct gdn__jit_text { /* of GDN_KERNEL_DIR, given to a job */
    struct gdn__jit_text *next;
    void *data;
} gdn__jit_text;

typedef struct gdn__jit_said { /* what was warned of once for the life of the backend */
    struct gdn__jit_said *next;
    char *what;
} gdn__jit_said;

typedef struct gdn__jit {
    gdn__log log;
    const gdn__env *env;
    const char *shipped[2]; /* GDN_CUBIN_DIR, <datadir>/gdn/cubins; NULL: none */
    const char *asked;      /* GDN_NVRTC or ""      */
    const char *dump;       /* GDN_JIT_DUMP or NULL */
    const char *kernels;    /* GDN_KERNEL_DIR or NULL */
    bool print, nocache;    /* GDN_JIT_PRINT, GDN_JIT_NOCACHE */
    /* Told of each compiled module of a batch at once, its place in it; one call at a time, from any thread. NULL: nobody is. */
    void (*made)(void *user, uint32_t index, const gdn__cubin *c);
    void *made_user;
    const _Atomic int *stop; /* not 0: what has not been begun is not begun, and answers GDN_ABSENT. NULL: never */
    pthread_mutex_t mutex;   /* of all that follows  */
    bool cache_open, nvrtc_tried;
    gdn__cache cache;
    gdn_status nvrtc_status;
    char *nvrtc_why;
    gdn__nvrtc nvrtc;
    gdn__jit_note *notes;
    gdn__jit_text *texts;
    gdn__jit_said *said;
} gdn__jit;

/* env must outlive it. Touches no file. */
gdn_status gdn__jit_open(gdn__jit *j, const gdn__env *env, const gdn__log *log, gdn_text *err);
void gdn__jit_close(gdn__jit *j);

/* May this job be made? Anything but GDN_OK is its answer. */
typedef gdn_status (*gdn__jit_accept)(const void *user, const gdn_compile_job *job, gdn_text *err);
/* [any] One cubin for each of n jobs; one that fails does not stop the others. accept may be NULL. status and err as
 * modules_load's. The answer is the first failing status. */
gdn_status gdn__jit_get(gdn__jit *j, uint32_t n, const gdn_compile_job *jobs, gdn__jit_accept accept, const void *user, gdn__cubin *out,
                        gdn_status *status, gdn_text *err);
/* [any] The driver refused c: quarantines its file, compiles anew into c, publishes. */
gdn_status gdn__jit_renew(gdn__jit *j, const gdn_compile_job *job, gdn__cubin *c, gdn_text *err);
/* [any] The driver refused c for good, anew compiled or not: an error that names its file, which leaves the cache so that no later
 * start takes it for whole; remembered, since asking again will not cure it. why: the driver's answer. */
void gdn__jit_refused(gdn__jit *j, const gdn_compile_job *job, const gdn__cubin *c, const char *why);
/* [any] NVRTC, opened if it was not; NULL: err says why. */
const gdn__nvrtc *gdn__jit_nvrtc(gdn__jit *j, gdn_status *status, gdn_text *err);

/* Copies what both sides know of and checks it. jobs may have a longer struct: element i is i * jobs->struct_size bytes on. */
gdn_status gdn__job_read(const gdn_compile_job *jobs, uint32_t i, gdn_compile_job *out, gdn_text *err);
enum { GDN__WHY_BYTES = 1 << 18 }; /* a compiler log; only what is written takes memory */
/* The caller's text gets what fits, and the whole length. */
void gdn__hand_over(gdn_text *err, const gdn_text *why);
enum { GDN__DEFINES_BYTES = 128 };
/* " -DX -DY": the defines of a build, which tell it from others of the same source; "" when it has none. */
const char *gdn__job_defines(const gdn_compile_job *job, char out[GDN__DEFINES_BYTES]);
/* Each line of a text as a log line. */
void gdn__log_text(const gdn__log *log, uint32_t severity, const char *area, const char *text);

/* ---- nvrtc_sources.c ---- */
/* [any] Puts the texts that GDN_KERNEL_DIR has in place of the job's own; the others stay. They live as long as j. */
gdn_status gdn__jit_sources(gdn__jit *j, gdn_compile_job *job, gdn_text *err);

/* ---- nvrtc_jit_places.c ---- */
/* Looks in all places that need no compiler; id "": NVRTC is not known. GDN_ABSENT: a miss. */
gdn_status gdn__jit_look(gdn__jit *j, const gdn_compile_job *job, const gdn__key *content, const char *id, gdn__cubin *out);
/* The cache under one NVRTC only. tell: damage is logged. */
gdn_status gdn__jit_look_cached(gdn__jit *j, const gdn_compile_job *job, const char *id, bool tell, gdn__cubin *out);
/* The cache under any NVRTC, newest first: for when none can be opened. */
gdn_status gdn__jit_look_any(gdn__jit *j, const gdn_compile_job *job, gdn__cubin *out);
/* A remembered failure, or GDN_ABSENT. */
gdn_status gdn__jit_recall(gdn__jit *j, const gdn__key *content, gdn_text *err);
void gdn__jit_note_add(gdn__jit *j, const gdn__key *content, gdn_status status, const char *why, const void *data, size_t size);

/* ---- nvrtc_jit_said.c ---- */
/* [any] Is `what` new to this backend? So that what holds for a folder is not told again for each module. */
bool gdn__jit_first(gdn__jit *j, const char *what);
/* [any] A module that was compiled and not written to the cache: a warning for each folder and reason, then info lines.
 * why: ends in ": <the system's words>". */
void gdn__jit_not_kept(gdn__jit *j, const gdn_compile_job *job, const char *why);
/* [any] The cache takes nothing and something was compiled, or the cache cannot even be read and something is missing: one warning. */
void gdn__jit_memory_only(gdn__jit *j);
void gdn__jit_said_drop(gdn__jit *j);

/* ---- nvrtc_jit_build.c ---- */
/* Under the key's lock: looks again, compiles, publishes. look: a hit meanwhile is taken (*hit). why has room for the whole log. */
gdn_status gdn__jit_build(gdn__jit *j, const gdn_compile_job *job, const gdn__key *content, bool look, gdn__cubin *out, bool *hit,
                          double *ms, gdn_text *why);

#endif
