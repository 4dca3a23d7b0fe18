/* nvrtc_sources.c - GDN_KERNEL_DIR: texts of a folder in place of the ones that a plugin carries. */
#include "nvrtc_jit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_SOURCE = 16 << 20 };

/* What is put into a job lives as long as the compiler does. */
static bool keep(gdn__jit *j, void *data) {
    gdn__jit_text *t = gdn__alloc(sizeof *t);
    if (!t) return false;
    t->data = data;
    (void)pthread_mutex_lock(&j->mutex);
    t->next = j->texts;
    j->texts = t;
    (void)pthread_mutex_unlock(&j->mutex);
    return true;
}

/* DIR/name, else the file of that name in the folder of a target or of all: the layout of kernels/. NULL: not there. */
static char *place_of(const char *dir, const char *name) {
    static const char *const folders[] = { "", "hopper/", "gb10/", "common/" };
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    struct stat st;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char *path = gdn__format("%s/%s%s", dir, folders[i], i ? base : name);
        if (path && stat(path, &st) == 0) return path;
        free(path);
    }
    return NULL;
}

/* *text stays as it is when the folder has no such file. */
static gdn_status take(gdn__jit *j, const char *name, const char **text, gdn_text *err) {
    struct stat st;
    char *data = NULL, *path = place_of(j->kernels, name);
    size_t size = 0;
    gdn_status result = GDN_OK;
    if (!path || stat(path, &st) != 0) goto out;
    result = gdn__file_read(path, st.st_uid, MAX_SOURCE, &data, &size, err); /* its owner is whoever named the folder */
    if (result == GDN_ABSENT) result = GDN_E_IO;
    if (result != GDN_OK) goto out;
    if (memchr(data, '\0', size)) {
        gdn__text_set(err, "%s: holds a NUL byte, not a source", path);
        result = GDN_E_IO;
    } else if (!keep(j, data)) {
        result = GDN_E_NOMEM;
    } else {
        *text = data;
        data = NULL;
        gdn__log_line(&j->log, GDN_LOG_INFO, "nvrtc", "%s is read from %s (GDN_KERNEL_DIR)", name, path);
        if (strstr(*text, "GDN_KERNEL(") && !strstr(*text, "gdn_begin") && !strstr(name, "gdn_types"))
            gdn__log_line(&j->log, GDN_LOG_WARN, "nvrtc",
                          "%s: its entries do not wait for the kernel in front (gdn_begin): set gdn_launch_early=false", path);
    }
out:
    free(data);
    free(path);
    return result;
}

gdn_status gdn__jit_sources(gdn__jit *j, gdn_compile_job *job, gdn_text *err) {
    struct stat st;
    if (!j->kernels) return GDN_OK;
    if (stat(j->kernels, &st) != 0 || !S_ISDIR(st.st_mode)) {
        gdn__text_set(err, "GDN_KERNEL_DIR=%s: no such folder", j->kernels);
        return GDN_E_IO;
    }
    gdn_status result = take(j, job->name, &job->source, err);
    if (result != GDN_OK || !job->n_headers) return result;
    const char **headers = gdn__alloc(job->n_headers * sizeof *headers);
    if (!headers || !keep(j, headers)) {
        free(headers);
        return GDN_E_NOMEM;
    }
    for (uint32_t i = 0; i < job->n_headers; i++) {
        headers[i] = job->headers[i];
        if (result == GDN_OK) result = take(j, job->header_names[i], &headers[i], err);
    }
    job->headers = headers;
    return result;
}
