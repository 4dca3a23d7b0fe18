/* environment.c - the environment, copied once a process: later changes have no effect, and elevated programs see none of it. */
#define _GNU_SOURCE /* environ */
#include "host_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Everything of libgdn's own that is read besides the levers. */
static const char *const own_names[] = { "GDN_TARGET",    "GDN_PLUGIN_PATH", "GDN_ADD_PLUGIN_PATH", "GDN_CONF",      "GDN_CONF_DIR",
                                         "GDN_LOG",       "GDN_KEEP_LOADED", "GDN_NVRTC",           "GDN_CACHE_DIR", "GDN_CACHE_MAX_MIB",
                                         "GDN_CUBIN_DIR", "GDN_JIT_NOCACHE", "GDN_JIT_PRINT",       "GDN_JIT_DUMP",  "GDN_KERNEL_DIR" };
enum { OWN_NAMES = sizeof own_names / sizeof *own_names };

enum { MAX_KNOWN = OWN_NAMES + 2 * GDN__LEVERS, MAX_NAME = 64 };

/* What levers read, with libgdn's own names behind it; own: only names that begin with GDN_. */
static size_t known_names(const char *known[MAX_KNOWN], bool own) {
    size_t n = 0;
    for (size_t i = 0; i < OWN_NAMES && own; i++) known[n++] = own_names[i];
    for (uint32_t i = 0; i < GDN__LEVERS; i++) {
        const gdn__lever_def *d = &gdn__lever_defs[i];
        const bool ours = !strncmp(d->env, "GDN_", 4);
        if (ours == own) known[n++] = d->env;
        if (d->older && ours == own) known[n++] = d->older;
    }
    return n;
}

/* The name of "NAME=VALUE", cut to what a message needs. */
static void name_of(const char *var, char name[MAX_NAME]) {
    const size_t len = strcspn(var, "="), n = len < MAX_NAME ? len : MAX_NAME - 1;
    memcpy(name, var, n);
    name[n] = '\0';
}

/* Names that are meant for a lever. An engine has more of its own under METRALE_ and ATLAS_: those are not ours to judge. */
static bool meant_for_a_lever(const char *name, const char **near) {
    static const char *const family[] = { "METRALE_GDN_", "METRALE_NO_GDN_", "METRALE_SSM_BA_GATES", "METRALE_W4A4_",
                                          "ATLAS_SSM_BA_GATES" };
    const char *known[MAX_KNOWN];
    const size_t n = known_names(known, false);
    *near = NULL;
    if (strncmp(name, "METRALE_", 8) != 0 && strncmp(name, "ATLAS_", 6) != 0) return false;
    for (size_t i = 0; i < sizeof family / sizeof *family; i++) {
        if (strncmp(name, family[i], strlen(family[i])) != 0) continue;
        *near = gdn__nearest(name, known, n);
        return true;
    }
    *near = gdn__nearest_within(name, known, n, strlen(name) / 4); /* the name space alone is half of many names */
    return *near != NULL;
}

static bool concerns_us(const char *var) {
    const char *known[MAX_KNOWN], *near;
    char name[MAX_NAME];
    if (!strncmp(var, "GDN_", 4)) return true;
    const size_t n = known_names(known, false), len = strcspn(var, "=");
    for (size_t i = 0; i < n; i++)
        if (strlen(known[i]) == len && !memcmp(known[i], var, len)) return var[len] == '=';
    name_of(var, name);
    return meant_for_a_lever(name, &near);
}

void gdn__env_drop(gdn__env *env) {
    for (size_t i = 0; i < env->n; i++) free(env->vars[i]);
    free(env->vars);
    *env = (gdn__env) { 0 };
}

gdn_status gdn__env_capture(gdn__env *env, char *const *vars, bool secure) {
    *env = (gdn__env) { 0 };
    if (secure || !vars) return GDN_OK;
    size_t n = 0;
    for (char *const *v = vars; *v; v++) n += concerns_us(*v);
    env->vars = gdn__alloc((n + 1) * sizeof *env->vars);
    if (!env->vars) return GDN_E_NOMEM;
    for (char *const *v = vars; *v && env->n < n; v++) {
        if (!concerns_us(*v)) continue;
        env->vars[env->n] = gdn__copy(*v);
        if (!env->vars[env->n]) {
            gdn__env_drop(env);
            return GDN_E_NOMEM;
        }
        env->n++;
    }
    return GDN_OK;
}

const char *gdn__env_get(const gdn__env *env, const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0; i < env->n; i++)
        if (!strncmp(env->vars[i], name, n) && env->vars[i][n] == '=') return env->vars[i] + n + 1;
    return NULL;
}

void gdn__env_warn_unknown(const gdn__env *env, const gdn__log *log) {
    for (size_t v = 0; v < env->n; v++) {
        const char *var = env->vars[v], *known[MAX_KNOWN], *near;
        const bool own = !strncmp(var, "GDN_", 4);
        const size_t len = strcspn(var, "="), n = known_names(known, own);
        bool found = false;
        char name[MAX_NAME];
        for (size_t i = 0; i < n && !found; i++) found = strlen(known[i]) == len && !strncmp(known[i], var, len);
        if (found) continue;
        name_of(var, name);
        if (own)
            near = gdn__nearest(name, known, n);
        else
            (void)meant_for_a_lever(name, &near); /* it was taken for that */
        gdn__log_line(log, GDN_LOG_WARN, "env", "%s is set but nothing reads it%s%s%s", name, near ? "; did you mean " : "",
                      near ? near : "", near ? "?" : "");
    }
}

const gdn__env *gdn__env_shared(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static gdn__env shared;
    static bool taken;
    const gdn__env *env = NULL;
    (void)pthread_mutex_lock(&mutex);
    /* AT_SECURE is what secure_getenv() looks at. */
    if (!taken) taken = gdn__env_capture(&shared, environ, getauxval(AT_SECURE) != 0) == GDN_OK;
    if (taken) env = &shared;
    (void)pthread_mutex_unlock(&mutex);
    return env;
}
