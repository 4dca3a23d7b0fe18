/* gdn.h - the public face of libgdn: open a target by name, plan, launch, explain.
 *
 *     char why[1024];
 *     gdn_text err = { why, sizeof why, 0 };
 *     gdn_options opt = GDN_OPTIONS_INIT;
 *     gdn *g;
 *     opt.target = "auto";
 *     if (gdn_open(&opt, &g, &err) != GDN_OK) ...                        why says what is wrong
 *     gdn_norm_shape shape = { .base = { .struct_size = sizeof shape, .op = GDN_OP_NORM, ... }, ... };
 *     gdn_hplan *plan;
 *     if (gdn_plan_make(g, &shape.base, NULL, &plan, &err) != GDN_OK) ...
 *     gdn_launch_args args = { .struct_size = sizeof args, .stream = stream, .n_ptr = ..., .ptr = ..., .n_u32 = ..., .u32 = ... };
 *     gdn_launch(plan, &args);                                           orders of ptr and u32: gdn_op_norm.h
 *     gdn_sync(g, stream);
 *     gdn_plan_free(plan);
 *     gdn_close(g);
 *
 * Levers, [defaults] files and environment are read at the first gdn_open() of the process and shared by later ones.
 * Statuses: gdn_status.h. Shapes and orders: gdn_op_*.h. A target asked for by name that does not load is an error with the
 * list of places tried, never another target; "auto" may fall through and logs what it took and why.
 *
 * Growth as in gdn_plugin.h: options longer than the library knows are taken when the rest is zero, else GDN_E_ABI.
 *
 * Threads: [any] any thread, concurrently; [ctx] the caller serialises calls on one gdn. */
#ifndef GDN_H
#define GDN_H

#include "gdn_op_conv.h"
#include "gdn_op_gates.h"
#include "gdn_op_norm.h"
#include "gdn_op_rule.h"
#include "gdn_op_state.h"
#include "gdn_op_step.h"
#include "gdn_op_w4a4.h"
#include "gdn_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(GDN_BUILDING_LIBRARY)
#define GDN_API __attribute__((visibility("default")))
#else
#define GDN_API
#endif

/* An open target: its plugin, its context, and the generation that plans belong to. */
typedef struct gdn gdn;
/* A plan made through the host: knows its generation, keeps it alive, forwards to the plugin's plan. */
typedef struct gdn_hplan gdn_hplan;

/* One lever set by the program: outranks files and environment. Copied. */
typedef struct gdn_setting {
    const char *key;
    const char *value; /* as in the file: true, false, 4, ... */
} gdn_setting;

/* [any] One finished line; severity GDN_LOG_*, GDN_LOG_HOST_BUG when the caller broke a rule. The strings live for the call. */
typedef void (*gdn_log_fn)(void *user, uint32_t severity, const char *area, const char *msg);

/* gdn_options.flags */
enum { GDN_OPEN_DRY = 1 /* load and negotiate only, open no device: gdn_describe and gdn_route_for work, plans and memory do not */ };

typedef struct gdn_options {
    uint32_t struct_size;
    int32_t ordinal;         /* device; 0                                                                        */
    const char *target;      /* "cpu", "gb10", "hopper", "auto", or a path (anything with a slash); NULL: GDN_TARGET, else "auto" */
    const char *plugin_path; /* folders, colon separated: replaces the search list; NULL: GDN_PLUGIN_PATH, ...   */
    const char *conf;        /* one more ini, stronger than the other files; NULL: GDN_CONF                      */
    gdn_log_fn log;          /* NULL: warnings and errors go nowhere; the command line tool sets its own         */
    void *log_user;
    const gdn_setting *settings;
    uint32_t n_settings;
    uint32_t log_level; /* highest severity wanted, GDN_LOG_ERROR to GDN_LOG_DEBUG, more is refused; 0: GDN_LOG of the environment,
                           else GDN_LOG_INFO. GDN_LOG_HOST_BUG lines come at every level */
    uint32_t flags;     /* GDN_OPEN_*; unknown bits are refused */
    uint32_t pad_;      /* must be 0, else refused */
} gdn_options;
#define GDN_OPTIONS_INIT \
    { (uint32_t)sizeof(gdn_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* [any] Opens a target. On failure *out is NULL and err (may be NULL) names the reason and the places tried. */
GDN_API gdn_status gdn_open(const gdn_options *opt, gdn **out, gdn_text *err);
/* [ctx] All plans must be freed first; those that are not keep their generation alive until they are. NULL is ignored. */
GDN_API void gdn_close(gdn *g);

/* What was opened. Strings live until gdn_close. */
typedef struct gdn_info {
    uint32_t struct_size;
    uint32_t abi_major, abi_minor;
    uint32_t generation; /* 1 at open, +1 for every swap */
    const char *target;  /* "cpu" */
    const char *path;    /* the file that was loaded     */
    const char *version, *build_id, *sanitizer, *archs;
    uint64_t flags;
    gdn_device device;
} gdn_info;
GDN_API gdn_status gdn_describe(const gdn *g, gdn_info *out); /* [any] */

/* [ctx] Makes a plan for the shape's maxima. stream: see gdn_plugin.h. GDN_REFUSED and GDN_ABSENT: *out NULL, err says why. */
GDN_API gdn_status gdn_plan_make(gdn *g, const gdn_shape *shape, void *stream, gdn_hplan **out, gdn_text *err);
GDN_API void gdn_plan_free(gdn_hplan *plan); /* [ctx] NULL is ignored */
/* [any] Capture-safe, no lock. args is read up to the smallest of its own size, the library's and the plugin's; one that does not
 * reach u32 is GDN_E_ABI. gdn_explain and gdn_route_for fill *out likewise; one that does not reach guard is GDN_E_ABI. */
GDN_API gdn_status gdn_launch(const gdn_hplan *plan, const gdn_launch_args *args);
GDN_API gdn_status gdn_explain(const gdn_hplan *plan, uint32_t n_u32, const uint32_t *u32, gdn_route *out); /* [any] */
/* [any] What would run for a shape, without a plan: on the open device, GDN_ABSENT where gdn_plan_make is; with GDN_OPEN_DRY on the
 * target's own. sm_count 0: the device's, or not known. */
GDN_API gdn_status gdn_route_for(gdn *g, uint32_t sm_count, const gdn_shape *shape, uint32_t n_u32, const uint32_t *u32, gdn_route *out,
                                 gdn_text *err);
/* [any] At most cap counters; *n is how many there are. Launches per entry, refusals per guard. */
GDN_API gdn_status gdn_counters(const gdn *g, gdn_counter *out, uint32_t cap, uint32_t *n);

/* ---- memory of the target's device: plain host memory on cpu ---- */
GDN_API gdn_status gdn_mem_alloc(gdn *g, uint64_t bytes, uint64_t *out); /* [any] aligned to 256 bytes, not cleared */
GDN_API void gdn_mem_free(gdn *g, uint64_t ptr);                         /* [any] 0 is ignored */
/* Copies and gdn_sync wait: on a capturing stream they are GDN_E_CAPTURE, and the capture goes on. gdn_fill may be captured. */
/* [any] src may be reused on return. */
GDN_API gdn_status gdn_copy_in(gdn *g, void *stream, uint64_t dst, const void *src, uint64_t bytes);
GDN_API gdn_status gdn_copy_out(gdn *g, void *stream, void *dst, uint64_t src, uint64_t bytes); /* [any] returns when the bytes are there */
GDN_API gdn_status gdn_fill(gdn *g, void *stream, uint64_t dst, uint32_t byte, uint64_t bytes); /* [any] byte 0 to 255; may be enqueued */
GDN_API gdn_status gdn_sync(gdn *g, void *stream);                                              /* [any] waits for the stream */

/* [any] For an engine with kernels of its own: the table through which the target's memory and kernels are made (gdn_backend.h), so that
 * they go by the same driver, compiler, cache and log. *ordinal (may be NULL): the device, an argument of most entries. On host memory
 * the entries for kernels are NULL. It lives until gdn_close; what was made with it must be given back before. NULL: no device is open
 * (GDN_OPEN_DRY). */
GDN_API const gdn_backend *gdn_backend_of(const gdn *g, int32_t *ordinal);

/* ---- levers: every value with its source and place ---- */
typedef struct gdn_lever_info {
    uint32_t struct_size;
    uint32_t source; /* GDN_FROM_*                                             */
    const char *key;
    const char *value;   /* NULL: unset                                            */
    const char *where;   /* "built in", "hopper.ini:12", "METRALE_GDN_PIPE", "api"  */
    const char *env;     /* environment variable                                   */
    const char *grammar; /* "toggle", "presence", "exact string", "strict"         */
    const char *meaning;
    const char *builtin; /* value without any file; NULL: unset                    */
} gdn_lever_info;
/* [any] Reads the levers of a target as gdn_open would; index 0.. until GDN_ABSENT. The set is owned by the caller. */
typedef struct gdn_lever_set gdn_lever_set;
GDN_API gdn_status gdn_levers_read(const gdn_options *opt, const char *target, gdn_lever_set **out, gdn_text *err);
GDN_API gdn_status gdn_levers_at(const gdn_lever_set *set, uint32_t index, gdn_lever_info *out); /* [any] strings live as long as the set */
GDN_API void gdn_levers_free(gdn_lever_set *set);                                                /* [any] once; NULL is ignored */

/* ---- what could be opened ---- */
typedef struct gdn_target_info {
    uint32_t struct_size;
    int32_t status; /* GDN_OK: usable; else why not */
    const char *target, *path, *version, *build_id, *archs, *reason;
    uint32_t abi_major, abi_minor;
} gdn_target_info;
/* [any] Called once per known target, in the order auto prefers them; strings live for the call. Usable: the plugin loads, its
 * settings are what gdn_open would take (conf, environment, opt->settings), and a device of its kind is there. */
GDN_API gdn_status gdn_targets(const gdn_options *opt, void (*each)(void *user, const gdn_target_info *info), void *user, gdn_text *err);

GDN_API const char *gdn_status_name(gdn_status s); /* [any] "GDN_E_ARG"; "unknown status" for numbers it does not know */
GDN_API const char *gdn_status_text(gdn_status s); /* [any] */
GDN_API const char *gdn_version(void);             /* [any] "0.1.0" */
GDN_API uint32_t gdn_op_by_name(const char *name); /* [any] GDN_OP_*, 0 when there is none */
GDN_API const char *gdn_op_name(uint32_t op);      /* [any] NULL when there is none */

#ifdef __cplusplus
}
#endif
#endif
