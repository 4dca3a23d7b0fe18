/* conf_files.c - which settings files a target has, read once a process and kept.
 *
 * Weakest first: <target>.ini of the project, from the first of GDN_CONF_DIR, the data folder, and (when /etc has none either)
 * the source tree; /etc/gdn/<target>.ini; the file of GDN_CONF or gdn_options.conf. */
#include "host_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 20 };

static gdn_status read_all(int fd, const char *path, char **out, size_t *size, gdn_text *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        gdn__text_set(err, "%s: %s", path, strerror(errno));
        return GDN_E_CONF;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > MAX_BYTES) {
        gdn__text_set(err, "%s: %s", path,
                      S_ISDIR(st.st_mode)   ? "a directory"
                      : S_ISREG(st.st_mode) ? "above 1 MiB"
                                            : "not a regular file");
        return GDN_E_CONF;
    }
    char *text = gdn__alloc((size_t)st.st_size);
    if (!text) {
        gdn__text_set(err, "%s: %s", path, gdn_status_text(GDN_E_NOMEM));
        return GDN_E_NOMEM;
    }
    size_t n = 0;
    while (n < (size_t)st.st_size) {
        const ssize_t got = read(fd, text + n, (size_t)st.st_size - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            gdn__text_set(err, "%s: %s", path, strerror(errno));
            free(text);
            return GDN_E_CONF;
        }
        if (got == 0) break; /* it became shorter */
        n += (size_t)got;
    }
    *out = text;
    *size = n;
    return GDN_OK;
}

gdn_status gdn__ini_load(const char *path, gdn__ini **out, gdn_text *err) {
    char *text = NULL;
    size_t size = 0;
    *out = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const int why = errno;
        gdn__text_set(err, "%s: %s", path, strerror(why));
        return why == ENOENT || why == ENOTDIR ? GDN_ABSENT : GDN_E_CONF;
    }
    gdn_status st = read_all(fd, path, &text, &size, err);
    (void)close(fd); /* only read */
    if (st != GDN_OK) return st;
    gdn__ini *ini = gdn__alloc(sizeof *ini);
    if (ini) ini->path = gdn__copy(path);
    if (!ini || !ini->path) {
        gdn__text_set(err, "%s: %s", path, gdn_status_text(GDN_E_NOMEM));
        st = GDN_E_NOMEM;
    } else {
        st = gdn__ini_parse(path, text, size, ini, err);
    }
    free(text);
    if (st == GDN_OK) {
        *out = ini;
    } else {
        gdn__ini_free(ini);
    }
    return st;
}

/* The cache: a file that was read is what later opens see, whatever happens to it. Errors are not kept. */
static gdn_status cached(const char *path, const gdn__ini **out, gdn_text *err) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static gdn__ini *head;
    gdn_status st = GDN_OK;
    (void)pthread_mutex_lock(&mutex);
    gdn__ini *ini = head;
    while (ini && strcmp(ini->path, path) != 0) ini = ini->next;
    if (!ini) {
        st = gdn__ini_load(path, &ini, err);
        if (st == GDN_OK) {
            ini->next = head;
            head = ini;
        }
    }
    (void)pthread_mutex_unlock(&mutex);
    *out = ini;
    return st;
}

/* Takes over path. GDN_ABSENT is no error here, *got says whether there was one. */
static gdn_status try_one(gdn__conf *c, char *path, bool by_name, bool *got, gdn_text *err) {
    const gdn__ini *ini = NULL;
    gdn_status st = GDN_E_NOMEM;
    *got = false;
    if (path) {
        st = cached(path, &ini, err);
    } else {
        gdn__text_set(err, "%s", gdn_status_text(st));
    }
    free(path);
    if (st == GDN_OK) {
        const char *slash = strrchr(ini->path, '/');
        c->file[c->n] = ini;
        c->label[c->n++] = by_name && slash ? slash + 1 : ini->path;
        *got = true;
    }
    if (st != GDN_ABSENT) return st;
    gdn__text_set(err, "%s", ""); /* not there is no reason to be told */
    return GDN_OK;
}

/* The first of the project's own folders. share: beside a moved installation. */
static gdn_status project_file(gdn__conf *c, const char *dir, const char *target, bool *got, gdn_text *err) {
    gdn_status st = GDN_OK;
    *got = false;
    if (dir && *dir) st = try_one(c, gdn__format("%s/%s.ini", dir, target), true, got, err);
    if (st == GDN_OK && !*got) st = try_one(c, gdn__format("%s/targets/%s.ini", GDN_INSTALL_DATA_DIR, target), true, got, err);
    char *own = gdn__own_folder();
    static const char *const up[] = { "..", "../.." }; /* lib, lib/<triplet> */
    for (int i = 0; i < 2 && own && st == GDN_OK && !*got; i++)
        st = try_one(c, gdn__format("%s/%s/share/gdn/targets/%s.ini", own, up[i], target), true, got, err);
    free(own);
    return st;
}

gdn_status gdn__conf_find(const gdn__env *env, const char *target, const char *extra, gdn__conf *out, const gdn__log *log, gdn_text *err) {
    const char *dir = gdn__env_get(env, "GDN_CONF_DIR"), *named = gdn__env_get(env, "GDN_CONF");
    bool project = false, local = false, got = false;
    *out = (gdn__conf) { 0 };
    gdn_status st = project_file(out, dir, target, &project, err);
    if (st == GDN_OK) st = try_one(out, gdn__format("/etc/gdn/%s.ini", target), false, &local, err);
    if (st == GDN_OK && !project && !local) st = try_one(out, gdn__format("%s/%s.ini", GDN_SOURCE_CONF_DIR, target), true, &project, err);
    if (st != GDN_OK) return st;
    if (!project && !local) gdn__log_line(log, GDN_LOG_INFO, "conf", "no %s.ini: all levers have their built-in values", target);

    const bool from_env = !extra || !*extra;
    if (from_env) extra = named;
    if (!extra || !*extra) return GDN_OK;
    st = try_one(out, gdn__copy(extra), false, &got, err);
    if (st == GDN_OK && !got) { /* a file that was asked for must be there */
        gdn__text_set(err, "%s=%s: no such file", from_env ? "GDN_CONF" : "conf", extra);
        st = GDN_E_CONF;
    }
    return st;
}
