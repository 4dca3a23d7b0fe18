/* cubin_cache_walk.c - every file of a cache folder; the bound on its size, least recently used first. */
#define _GNU_SOURCE /* O_CLOEXEC */
#include "cubin_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static bool ends(const char *s, const char *tail) {
    const size_t n = strlen(s), k = strlen(tail);
    return n > k && !strcmp(s + n - k, tail);
}

static uint32_t kind_of(const char *name) {
    if (name[0] == '.') return ends(name, ".tmp") ? GDN__IS_TEMP : ends(name, ".lock") ? GDN__IS_LOCK : GDN__IS_OTHER;
    if (strlen(name) != 32 + strlen(".cubin") && strlen(name) != 32 + strlen(".ini")) return GDN__IS_OTHER;
    return ends(name, ".cubin") ? GDN__IS_ENTRY : ends(name, ".ini") ? GDN__IS_SIDE : GDN__IS_OTHER;
}

/* <root>/<identity>/<two digits>/<file>: three levels at most. */
static gdn_status walk(const char *folder, uint32_t depth, bool bad, void (*each)(void *user, const gdn__found *f), void *user,
                       gdn_text *why) {
    gdn_status st = GDN_OK;
    DIR *d = opendir(folder);
    if (!d) {
        gdn__text_set(why, "%s: %s", folder, strerror(errno));
        return errno == ENOENT ? GDN_ABSENT : GDN_E_IO;
    }
    for (struct dirent *e; st == GDN_OK && (errno = 0, e = readdir(d)) != NULL;) {
        gdn__found f = { .bad = bad };
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char *path = gdn__format("%s/%s", folder, e->d_name);
        if (!path) {
            st = GDN_E_NOMEM;
        } else if (lstat(path, &f.st) != 0) {
            /* gone meanwhile: another process looks after the folder too */
        } else if (S_ISDIR(f.st.st_mode)) {
            if (depth < 2) st = walk(path, depth + 1, bad || (depth == 0 && !strcmp(e->d_name, "bad")), each, user, why);
            if (st == GDN_ABSENT) st = GDN_OK;
        } else if (S_ISREG(f.st.st_mode)) {
            f.path = path;
            f.kind = kind_of(e->d_name);
            each(user, &f);
        }
        free(path);
    }
    (void)closedir(d);
    return st;
}

gdn_status gdn__cache_walk(const char *root, void (*each)(void *user, const gdn__found *f), void *user, gdn_text *why) {
    return walk(root, 0, false, each, user, why);
}

typedef struct entry {
    char *path;
    uint64_t bytes;
    int64_t used;
} entry;
typedef struct trim {
    entry *list;
    size_t n, cap;
    int64_t now;
    bool all_bad, no_memory;
    gdn__trimmed *out;
} trim;

/* A lock that nobody holds any more (its holder was killed) is removed while this process holds it. */
static void remove_free_lock(const char *path) {
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) (void)unlink(path);
    (void)close(fd);
}

static bool has_sibling(const char *path, const char *tail, const char *other) {
    struct stat st;
    char *sibling = gdn__format("%.*s%s", (int)(strlen(path) - strlen(tail)), path, other);
    const bool yes = !sibling || lstat(sibling, &st) == 0; /* without memory: leave it alone */
    free(sibling);
    return yes;
}

static void remove_entry(const char *path, uint64_t bytes, gdn__trimmed *out) {
    char *side = gdn__format("%.*s.ini", (int)(strlen(path) - strlen(".cubin")), path);
    if (side && unlink(path) == 0) {
        (void)unlink(side); /* one that stays names nothing and is reaped when it is stale */
        out->removed++;
        out->removed_bytes += bytes;
    }
    free(side);
}

static void consider(void *user, const gdn__found *f) {
    trim *t = user;
    const bool stale = t->now - (int64_t)f->st.st_mtim.tv_sec > GDN__STALE_SECONDS;
    gdn__side side;
    switch (f->kind) {
    case GDN__IS_TEMP:
        if (stale) (void)unlink(f->path); /* its writer has been gone for an hour */
        return;
    case GDN__IS_LOCK:
        if (stale) remove_free_lock(f->path);
        return;
    case GDN__IS_SIDE:
        if (stale && !has_sibling(f->path, ".ini", ".cubin")) (void)unlink(f->path);
        return;
    case GDN__IS_ENTRY: break;
    default: return;
    }
    const uint64_t bytes = (uint64_t)f->st.st_size;
    if (t->all_bad && (f->bad || gdn__entry_check(f->path, geteuid(), &side, NULL, NULL, NULL) == GDN_E_IO)) {
        remove_entry(f->path, bytes, t->out);
        return;
    }
    if (t->n == t->cap) {
        const size_t cap = t->cap ? t->cap * 2 : 64;
        entry *more = gdn__alloc(cap * sizeof *more);
        if (!more) {
            t->no_memory = true;
            return;
        }
        if (t->n) memcpy(more, t->list, t->n * sizeof *more);
        free(t->list);
        t->list = more;
        t->cap = cap;
    }
    char *path = gdn__copy(f->path);
    if (!path) {
        t->no_memory = true;
        return;
    }
    t->list[t->n++] = (entry) { path, bytes, (int64_t)f->st.st_mtim.tv_sec };
    t->out->entries++;
    t->out->bytes += bytes;
}

static int older_first(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return x->used != y->used ? (x->used < y->used ? -1 : 1) : strcmp(x->path, y->path);
}

gdn_status gdn__cache_trim(const char *root, uint64_t max_bytes, int64_t since, bool all_bad, gdn__trimmed *out, gdn_text *why) {
    *out = (gdn__trimmed) { 0 };
    trim t = { .now = (int64_t)time(NULL), .all_bad = all_bad, .out = out };
    gdn_status st = gdn__cache_walk(root, consider, &t, why);
    if (st == GDN_OK && t.no_memory) st = GDN_E_NOMEM;
    if (st == GDN_OK && t.n) qsort(t.list, t.n, sizeof *t.list, older_first);
    for (size_t i = 0; i < t.n; i++) {
        if (st == GDN_OK && out->bytes > max_bytes && t.list[i].used < since) {
            const uint64_t removed = out->removed;
            remove_entry(t.list[i].path, t.list[i].bytes, out);
            if (out->removed != removed) out->entries--, out->bytes -= t.list[i].bytes;
        }
        free(t.list[i].path);
    }
    free(t.list);
    return st;
}
