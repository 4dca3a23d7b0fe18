/* host_internal.h - what the files of libgdn share; nothing of it is exported.
 *
 *   text.c          caller-owned texts, allocation                    log.c            level filter, once-flags
 *   nearest.c       did you mean                                      names.c          statuses, operations
 *   environment.c   the environment, copied once a process            lever_grammar.c  one value against one grammar
 *   ini_read.c      one settings file                                 conf_files.c     which files, and their cache
 *   lever_set.c     all sources put together, public reading          search.c         folders and file names
 *   elf_check.c     is this file a plugin for this machine            negotiate.c      identity and table
 *   loader.c        dlopen, dlclose, by path and by name              choose.c         name, path or auto to a plugin
 *   host_backend.c  memory of the host                                generation.c     plugin + context, counted
 *   open.c hplan.c memory.c targets.c                                  the rest of gdn.h */
#ifndef GDN_HOST_INTERNAL_H
#define GDN_HOST_INTERNAL_H

#include "gdn.h"
#include "nearest.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- text.c ---- */
#define GDN__PRINTF(f, a) __attribute__((format(printf, f, a)))
/* All accept NULL. set replaces, add appends; len counts what did not fit. */
void gdn__text_set(gdn_text *t, const char *fmt, ...) GDN__PRINTF(2, 3);
void gdn__text_add(gdn_text *t, const char *fmt, ...) GDN__PRINTF(2, 3);
/* Zeroed memory or NULL; the tests make the n-th call fail. */
void *gdn__alloc(size_t bytes);
char *gdn__copy(const char *text);
char *gdn__format(const char *fmt, ...) GDN__PRINTF(1, 2);
extern _Atomic int32_t gdn__alloc_fail_in; /* allocations until one fails; negative: never. Only tests write it. */

/* ---- log.c ---- */
typedef struct gdn__log {
    gdn_log_fn fn;
    void *user;
    uint32_t level;
} gdn__log;
void gdn__log_raw(const gdn__log *log, uint32_t severity, const char *area, const char *msg);
void gdn__log_line(const gdn__log *log, uint32_t severity, const char *area, const char *fmt, ...) GDN__PRINTF(4, 5);
/* GDN_LOG_* of error, warn, info, debug; 0 for anything else. */
uint32_t gdn__log_level(const char *name);
uint32_t gdn__once(void *user, uint32_t slot);

/* ---- environment.c ---- */
typedef struct gdn__env {
    char **vars; /* "NAME=VALUE", those that could concern us */
    size_t n;
} gdn__env;
/* secure: the process is elevated, nothing is taken. */
gdn_status gdn__env_capture(gdn__env *env, char *const *vars, bool secure);
void gdn__env_drop(gdn__env *env);
const char *gdn__env_get(const gdn__env *env, const char *name); /* NULL: not set */
/* One warning for each name that nobody reads: GDN_*, and under METRALE_ and ATLAS_ what is meant for a lever. */
void gdn__env_warn_unknown(const gdn__env *env, const gdn__log *log);
/* Taken at the first call of the process; NULL: no memory. */
const gdn__env *gdn__env_shared(void);

/* ---- levers ---- */
enum { GDN__TOGGLE, GDN__PRESENCE, GDN__EXACT, GDN__STRICT };
#define GDN__LEVER(ID, key, grammar, builtin, env, older, values, expected, off, meaning) GDN__L_##ID,
enum {
#include "levers.def"
    GDN__LEVERS
};
#undef GDN__LEVER
typedef struct gdn__lever_def {
    const char *key;
    uint32_t grammar;
    const char *builtin;  /* NULL: unset                                             */
    const char *env;      /* environment variable                                    */
    const char *older;    /* its older name, or NULL                                 */
    const char *values;   /* "1|4": what files and API may say (strict: the environment too); NULL: see the grammar */
    const char *expected; /* "1 or 4": the same for people                           */
    const char *off;      /* presence: key of the toggle that it turns off, or NULL  */
    const char *meaning;
} gdn__lever_def;
extern const gdn__lever_def gdn__lever_defs[GDN__LEVERS];
int gdn__lever_find(const char *key); /* -1: none */
const char *gdn__lever_nearest(const char *key);
const char *gdn__grammar_name(uint32_t grammar);

/* *value: what plugins see, borrowed from `text` or static; NULL: as if it were not set. */
gdn_status gdn__lever_from_env(const gdn__lever_def *d, const char *name, const char *text, const char **value, gdn_text *err);
/* A value of a file or of the API. `place` begins the error line. */
gdn_status gdn__lever_from_text(const gdn__lever_def *d, const char *place, const char *text, const char **value, gdn_text *err);

/* ---- ini_read.c, conf_files.c ---- */
typedef struct gdn__ini {
    struct gdn__ini *next;
    char *path;
    char *value[GDN__LEVERS]; /* NULL: not in the file */
    uint32_t line[GDN__LEVERS];
} gdn__ini;
/* The whole file in memory; errors are "path:line: key: what". */
gdn_status gdn__ini_parse(const char *path, const char *text, size_t size, gdn__ini *out, gdn_text *err);
/* GDN_ABSENT when there is no such file. */
gdn_status gdn__ini_load(const char *path, gdn__ini **out, gdn_text *err);
void gdn__ini_free(gdn__ini *ini);

typedef struct gdn__conf { /* weakest first; borrowed from the process's cache */
    const gdn__ini *file[3];
    const char *label[3]; /* how `where` names it: NULL: by its base name */
    uint32_t n;
} gdn__conf;
gdn_status gdn__conf_find(const gdn__env *env, const char *target, const char *extra, gdn__conf *out, const gdn__log *log, gdn_text *err);

/* ---- lever_set.c ---- */
struct gdn_lever_set {
    struct {
        char *value; /* NULL: unset */
        char *where;
        uint32_t source;
    } at[GDN__LEVERS];
};
gdn_status gdn__levers_resolve(const gdn__env *env, const gdn__conf *conf, const gdn_setting *settings, uint32_t n_settings,
                               const gdn__log *log, gdn_lever_set **out, gdn_text *err);

/* ---- search.c ---- */
typedef struct gdn__places { /* folders, strongest first */
    char **folder;
    char **rule; /* which rule put it there */
    size_t n;
} gdn__places;
bool gdn__target_name_ok(const char *name);
gdn_status gdn__target_name_check(const char *name, gdn_text *err); /* GDN_OK or GDN_E_ARG, which err explains */
/* Room for a reason that quotes a path of any length that can be opened. */
enum { GDN__WHY = 8192 };
gdn_status gdn__places_list(const gdn__env *env, const char *plugin_path, gdn__places *out, gdn_text *err);
void gdn__places_free(gdn__places *p);
/* Folder of the object that holds libgdn's code, and of the program; NULL when it cannot be told. Caller frees. */
char *gdn__own_folder(void);
char *gdn__program_folder(void);

/* ---- elf_check.c ---- */
/* GDN_OK when dlopen may be tried; GDN_ABSENT when there is no file; else err says what the file is instead. */
gdn_status gdn__elf_check(const char *path, gdn_text *err);

/* ---- negotiate.c, loader.c ---- */
typedef struct gdn__plugin {
    void *handle;
    char *path;     /* real path */
    bool begun;     /* init was called: no longer only a file with a pure query */
    gdn_plugin id;  /* what both sides know of, the rest zero */
    gdn_vtable ops; /* likewise */
} gdn__plugin;
gdn_status gdn__negotiate(gdn_plugin_query_fn query, const char *target, gdn__plugin *out, gdn_text *err);
/* target NULL: whatever the file says it is. On failure nothing stays loaded. */
gdn_status gdn__plugin_load(const char *path, const char *target, gdn__plugin *out, gdn_text *err);
/* Every place in order. A file that is there and refused is logged, and the next place is tried. */
gdn_status gdn__plugin_find(const gdn__places *places, const char *target, gdn__plugin *out, const gdn__log *log, gdn_text *err);
/* Unmapped when it never began, or when it allows it and keep does not forbid it. */
void gdn__plugin_retire(gdn__plugin *p, bool keep);

/* ---- choose.c ---- */
extern const char *const gdn__known_targets[]; /* in the order auto prefers them, NULL at the end */
/* host memory for a plugin without architectures, else the CUDA driver; given back with gdn__backend_drop. */
gdn_status gdn__backend_for(const gdn__plugin *p, const gdn__log *log, const gdn_backend **out, gdn_text *err);
void gdn__backend_drop(const gdn_backend *backend); /* NULL is ignored */
/* Is there a device for the plugin, without opening one? */
gdn_status gdn__device_for(const gdn__plugin *p, gdn_text *why);
gdn_status gdn__choose(const gdn_options *opt, const gdn__env *env, const gdn__log *log, gdn__plugin *out, gdn_text *err);
/* Only the name; the caller frees it. */
gdn_status gdn__choose_name(const gdn_options *opt, const gdn__env *env, const gdn__log *log, char **out, gdn_text *err);

/* ---- host_backend.c ---- */
const gdn_backend *gdn__host_backend(void);

/* ---- generation.c ---- */
typedef struct gdn__generation {
    _Atomic uint32_t refs; /* the gdn, and every plan */
    uint32_t number;
    gdn__plugin plugin;
    gdn_ctx *ctx;
    gdn_host host; /* lent to the plugin; its user is this generation */
    const gdn_backend *backend;
    gdn_device device;
    gdn_lever_set *levers;
    gdn__log log;
    int32_t ordinal;
    bool keep_loaded;
    bool dry; /* no device, no context: routes only */
} gdn__generation;
/* Takes over *plugin and *levers, also on failure. */
gdn_status gdn__generation_make(gdn__plugin *plugin, gdn_lever_set *levers, const gdn__log *log, const gdn_options *opt, bool keep,
                                uint32_t number, gdn__generation **out, gdn_text *err);
void gdn__generation_ref(gdn__generation *gen);
void gdn__generation_unref(gdn__generation *gen); /* the last one ends the context and retires the plugin */

struct gdn {
    gdn__generation *gen; /* a swap replaces this pointer; plans keep the one they were made in */
};
struct gdn_hplan {
    gdn__generation *gen;
    gdn_plan *plan;
};

/* ---- open.c ---- */
/* Checks the options and copies what both sides know of. */
gdn_status gdn__options_read(const gdn_options *opt, gdn_options *out, gdn_text *err);
void gdn__log_open(const gdn_options *opt, const gdn__env *env, gdn__log *out);

#endif
