/* cubin_cache.c - where the cache is and whether it can be used; the record of the NVRTC last used; quarantine. */
#define _GNU_SOURCE /* secure_getenv */
#include "cubin_cache.h"

#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t gdn__cache_bound(const gdn__env *env, const gdn__log *log) {
    const char *text = gdn__env_get(env, "GDN_CACHE_MAX_MIB");
    uint64_t mib = GDN__CACHE_DEFAULT_MIB;
    if (text && *text) {
        char *end;
        errno = 0;
        const unsigned long long v = strtoull(text, &end, 10);
        if (text[0] >= '0' && text[0] <= '9' && !*end && !errno && v >= 1 && v <= 1 << 20) {
            mib = v;
        } else {
            gdn__log_line(log, GDN_LOG_WARN, "cache", "GDN_CACHE_MAX_MIB=%.40s: expected a whole number from 1 to 1048576; %u is used",
                          text, (unsigned)mib);
        }
    }
    return mib << 20;
}

/* The folder that the settings name; make: made if its parent is there. rule: the setting, for messages. NULL: why says it. */
static char *base_folder(const gdn__env *env, bool make, const char **rule, gdn_text *why) {
    const char *own = gdn__env_get(env, "GDN_CACHE_DIR"), *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    char *parent = NULL, *base = NULL;
    gdn_status st = GDN_OK;
    if (own && *own) {
        *rule = "GDN_CACHE_DIR";
        if (own[0] == '/')
            base = gdn__copy(own);
        else
            gdn__text_set(why, "%.200s: not an absolute folder", own);
    } else if (xdg && xdg[0] == '/') { /* its own rules say that a relative one is ignored */
        *rule = "XDG_CACHE_HOME";
        parent = gdn__copy(xdg);
        base = gdn__format("%s/gdn", xdg);
    } else if (home && home[0] == '/') {
        *rule = "HOME";
        parent = gdn__format("%s/.cache", home);
        base = gdn__format("%s/.cache/gdn", home);
    } else {
        *rule = "HOME";
        gdn__text_set(why, "HOME is not set");
    }
    if (parent && make) st = gdn__folder_make(parent, 0700, why);
    if (base && make && st == GDN_OK) st = gdn__folder_make(base, 0700, why);
    free(parent);
    if (st == GDN_OK) return base;
    free(base);
    return NULL;
}

void gdn__cache_open(gdn__cache *c, const gdn__env *env, const gdn__log *log, gdn_text *why) {
    char reason[1024] = "";
    gdn_text text = { reason, sizeof reason, 0 };
    const char *rule = "";
    *c = (gdn__cache) { .max_bytes = gdn__cache_bound(env, log), .opened = (int64_t)time(NULL) };
    char *base = base_folder(env, true, &rule, &text);
    gdn_status st = base ? gdn__folder_check(base, geteuid(), &text) : GDN_E_IO;
    if (st == GDN_OK) c->root = gdn__format("%s/v%d", base, (int)GDN__CACHE_SCHEMA);
    if (c->root) {
        st = gdn__folder_make(c->root, 0755, &text);
        if (st == GDN_OK) st = gdn__folder_check(c->root, geteuid(), &text);
        if (st == GDN_OK && access(c->root, W_OK | X_OK) != 0) {
            gdn__text_set(&text, "%s: %s", c->root, strerror(errno));
            st = GDN_E_IO;
        }
        c->writable = st == GDN_OK;
        /* One that can be read and not written is still read: its entries are checked like all others. */
        if (st != GDN_OK && gdn__folder_check(c->root, geteuid(), NULL) != GDN_OK) gdn__cache_close(c);
    }
    if (st != GDN_OK) {
        gdn__text_set(why, "%s (%s)", reason, rule);
        c->why = gdn__format("%s (from %s)", reason, rule);
    }
    free(base);
}

static bool is_there(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 || errno != ENOENT;
}

char *gdn__cache_not_yet(const gdn__env *env, bool *writable) {
    const char *rule = "";
    char *base = base_folder(env, false, &rule, NULL);
    char *root = base ? gdn__format("%s/v%d", base, (int)GDN__CACHE_SCHEMA) : NULL;
    bool none = root && !is_there(root);
    /* What would be made: the folder itself and, but for GDN_CACHE_DIR, the one above it. */
    for (int levels = strcmp(rule, "GDN_CACHE_DIR") == 0 ? 1 : 2; none && levels > 0 && !is_there(base); levels--) {
        char *slash = strrchr(base, '/');
        if (slash > base) *slash = '\0';
    }
    none = none && is_there(base);
    *writable = none && access(base, W_OK | X_OK) == 0;
    free(base);
    if (none) return root;
    free(root);
    return NULL;
}

void gdn__cache_close(gdn__cache *c) {
    free(c->root);
    free(c->why);
    c->root = c->why = NULL;
}

bool gdn__cache_quarantine(const gdn__cache *c, const char *path) {
    const char *name = strrchr(path, '/');
    const size_t stem = strlen(path) - strlen(".cubin");
    if (!c->root || !name || strncmp(path, c->root, strlen(c->root)) != 0) return false; /* shipped ones stay where they are */
    char *bad = gdn__format("%s/bad", c->root), *to = gdn__format("%s/bad%s", c->root, name);
    char *side = gdn__format("%.*s.ini", (int)stem, path);
    char *side_to = to ? gdn__format("%.*s.ini", (int)(strlen(to) - strlen(".cubin")), to) : NULL;
    bool moved = bad && to && side && side_to && gdn__folder_make(bad, 0755, NULL) == GDN_OK && rename(path, to) == 0;
    if (moved && rename(side, side_to) != 0) moved = unlink(side) == 0; /* without its cubin it names nothing */
    free(side_to);
    free(side);
    free(to);
    free(bad);
    return moved;
}

/* ---- the NVRTC last used ---- */
static int take(void *user, const char *section, const char *key, const char *value) {
    gdn__nvrtc_record *r = user;
    if (strcmp(section, "nvrtc") != 0) return 1;
    if (!strcmp(key, "path")) (void)snprintf(r->path, sizeof r->path, "%s", value);
    if (!strcmp(key, "asked")) (void)snprintf(r->asked, sizeof r->asked, "%s", value);
    if (!strcmp(key, "search")) (void)snprintf(r->search, sizeof r->search, "%s", value);
    if (!strcmp(key, "id")) (void)snprintf(r->id, sizeof r->id, "%s", value);
    if (!strcmp(key, "size")) r->size = strtoull(value, NULL, 10);
    if (!strcmp(key, "mtime")) r->mtime_ns = strtoll(value, NULL, 10);
    return 1;
}

/* What, besides the files themselves, decides which library a name finds. */
static void search_hash(char out[33]) {
    const char *path = secure_getenv("LD_LIBRARY_PATH");
    gdn__hash_hex(path ? path : "", path ? strlen(path) : 0, out);
}

static int64_t mtime_of(const struct stat *st) {
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

bool gdn__cache_known_nvrtc(const gdn__cache *c, const char *asked, char id[GDN__NVRTC_ID]) {
    gdn__nvrtc_record r = { .size = 0 };
    struct stat st;
    char *text = NULL, search[33];
    size_t n;
    char *path = c->root ? gdn__format("%s/nvrtc.ini", c->root) : NULL;
    bool known = path && gdn__file_read(path, geteuid(), 1 << 16, &text, &n, NULL) == GDN_OK && ini_parse_string(text, take, &r) == 0;
    search_hash(search);
    known = known && *r.id && !strchr(r.id, '/') && r.id[0] != '.' && !strcmp(r.asked, asked) && !strcmp(r.search, search) &&
            stat(r.path, &st) == 0 && (uint64_t)st.st_size == r.size && mtime_of(&st) == r.mtime_ns;
    if (known) (void)snprintf(id, GDN__NVRTC_ID, "%s", r.id);
    free(text);
    free(path);
    return known;
}

void gdn__cache_note_nvrtc(const gdn__cache *c, const char *asked, const char *path, const char *id) {
    struct stat st;
    char search[33], have[GDN__NVRTC_ID];
    enum { READ_BACK = 180 }; /* a longer path would be cut: then NVRTC is opened each time */
    if (!c->root || strlen(asked) > READ_BACK || strlen(path) > READ_BACK || stat(path, &st) != 0) return;
    if (gdn__cache_known_nvrtc(c, asked, have) && !strcmp(have, id)) return;
    search_hash(search);
    char *text = gdn__format("[nvrtc]\npath = %s\nasked = %s\nsearch = %s\nid = %s\nsize = %llu\nmtime = %lld\n", path, asked, search, id,
                             (unsigned long long)st.st_size, (long long)mtime_of(&st));
    /* Not being able to note it costs the next start an opening, nothing else. */
    if (text) (void)gdn__file_write(c->root, "nvrtc.ini", text, strlen(text), NULL);
    free(text);
}
