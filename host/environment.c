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
                                         "GDN_CUBIN_DIR", "GDN_JIT_NOCACHE", "GDN_JIT_PRINT",       "GDN_JIT_DUMP" };
enum { OWN_NAMES = sizeof own_names / sizeof *own_names };

static bool concerns_us(const char *var) {
    if (!strncmp(var, "GDN_", 4)) return true;
    for (uint32_t i = 0; i < GDN__LEVERS; i++) {
        const gdn__lever_def *d = &gdn__lever_defs[i];
        const char *const names[] = { d->env, d->older };
        for (int k = 0; k < 2; k++) {
            const size_t n = names[k] ? strlen(names[k]) : 0;
            if (n && !strncmp(var, names[k], n) && var[n] == '=') return true;
        }
    }
    return false;
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
    const char *known[OWN_NAMES + GDN__LEVERS];
    size_t n = 0;
    for (size_t i = 0; i < OWN_NAMES; i++) known[n++] = own_names[i];
    for (uint32_t i = 0; i < GDN__LEVERS; i++)
        if (!strncmp(gdn__lever_defs[i].env, "GDN_", 4)) known[n++] = gdn__lever_defs[i].env;

    for (size_t v = 0; v < env->n; v++) {
        const char *var = env->vars[v], *eq = strchr(var, '=');
        const size_t len = eq ? (size_t)(eq - var) : strlen(var);
        bool found = strncmp(var, "GDN_", 4) != 0; /* the others were taken because they are known */
        for (size_t i = 0; i < n && !found; i++) found = strlen(known[i]) == len && !strncmp(known[i], var, len);
        char name[64];
        if (found) continue;
        (void)memcpy(name, var, len < sizeof name ? len : sizeof name - 1);
        name[len < sizeof name ? len : sizeof name - 1] = '\0';
        const char *near = gdn__nearest(name, known, n);
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
