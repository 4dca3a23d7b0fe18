/* nvrtc_jit_said.c - what is told once: a folder's fault concerns every module, and one warning says it. */
#include "nvrtc_jit.h"

#include <stdlib.h>
#include <string.h>

bool gdn__jit_first(gdn__jit *j, const char *what) {
    bool known = false;
    gdn__jit_said *s = gdn__alloc(sizeof *s);
    char *copy = gdn__copy(what);
    (void)pthread_mutex_lock(&j->mutex);
    for (const gdn__jit_said *at = j->said; at && !known; at = at->next) known = !strcmp(at->what, what);
    if (!known && s && copy) { /* without memory it is told again, nothing else */
        *s = (gdn__jit_said) { j->said, copy };
        j->said = s;
        s = NULL;
        copy = NULL;
    }
    (void)pthread_mutex_unlock(&j->mutex);
    free(copy);
    free(s);
    return !known;
}

void gdn__jit_not_kept(gdn__jit *j, const gdn_compile_job *job, const char *why) {
    const char *reason = why; /* the file differs from module to module; what the system says of the folder does not */
    for (const char *p = why; (p = strstr(p, ": ")) != NULL;) reason = p += 2;
    char *what = gdn__format("%s: %s", j->cache.root ? j->cache.root : "", reason);
    const bool first = !what || gdn__jit_first(j, what);
    gdn__log_line(&j->log, first ? GDN_LOG_WARN : GDN_LOG_INFO, "cache", "%s: compiled and not kept: %s%s", job->name, why,
                  first ? " (told once; more modules of this kind: info)" : "");
    free(what);
}

void gdn__jit_memory_only(gdn__jit *j) {
    const char *why = j->cache.why ? j->cache.why : gdn_status_text(GDN_E_NOMEM);
    if (!gdn__jit_first(j, why)) return;
    gdn__log_line(&j->log, GDN_LOG_WARN, "cache", "compiled kernels are kept in memory only: %s", why);
}

void gdn__jit_said_drop(gdn__jit *j) {
    while (j->said) {
        gdn__jit_said *s = j->said;
        j->said = s->next;
        free(s->what);
        free(s);
    }
}
