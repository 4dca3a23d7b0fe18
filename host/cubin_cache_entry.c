/* cubin_cache_entry.c - one entry: the cubin and its side file, checked against each other at every read. */
#define _GNU_SOURCE /* futimens */
#include "cubin_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CUBIN_LIMIT = 256 << 20, SIDE_LIMIT = 1 << 20 };

static int take(void *user, const char *section, const char *key, const char *value) {
    gdn__side *s = user;
    if (strcmp(section, "cubin") != 0) return 1;
    const struct {
        const char *key;
        char *at;
        size_t cap;
    } texts[] = { { "key", s->key, sizeof s->key },
                  { "hash", s->hash, sizeof s->hash },
                  { "arch", s->arch, sizeof s->arch },
                  { "name", s->name, sizeof s->name },
                  { "nvrtc", s->nvrtc, sizeof s->nvrtc } };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(key, texts[i].key)) (void)snprintf(texts[i].at, texts[i].cap, "%s", value);
    if (!strcmp(key, "schema")) s->schema = (uint32_t)strtoul(value, NULL, 10);
    if (!strcmp(key, "size")) s->size = strtoull(value, NULL, 10);
    if (!strcmp(key, "time")) s->time = strtoull(value, NULL, 10);
    if (!strcmp(key, "ms")) s->ms = (double)strtoull(value, NULL, 10);
    if (!strcmp(key, "option")) {
        const size_t n = strlen(s->options);
        (void)snprintf(s->options + n, sizeof s->options - n, "%s%s", n ? " " : "", value);
    }
    return 1;
}

gdn_status gdn__entry_check(const char *path, uid_t owner, gdn__side *side, void **data, size_t *size, gdn_text *why) {
    char *text = NULL, *bytes = NULL, hash[33];
    size_t text_size = 0, n = 0;
    const size_t stem = strlen(path) - strlen(".cubin");
    char *side_path = gdn__format("%.*s.ini", (int)stem, path);
    *side = (gdn__side) { 0 };
    gdn_status st = side_path ? GDN_OK : GDN_E_NOMEM;
    if (st == GDN_OK) st = gdn__file_read(path, owner, CUBIN_LIMIT, &bytes, &n, why);
    if (st == GDN_OK) {
        st = gdn__file_read(side_path, owner, SIDE_LIMIT, &text, &text_size, why);
        /* A cubin whose side file is not there yet is being written, or its writer was killed. */
        if (st == GDN_OK && ini_parse_string(text, take, side) != 0) {
            gdn__text_set(why, "%s: damaged", side_path);
            st = GDN_E_IO;
        }
    }
    if (st == GDN_OK) {
        gdn__hash_hex(bytes, n, hash);
        st = GDN_E_IO;
        if (side->schema != GDN__CACHE_SCHEMA) {
            gdn__text_set(why, "%s: schema %u, not %d", side_path, (unsigned)side->schema, (int)GDN__CACHE_SCHEMA);
        } else if (side->size != n) {
            gdn__text_set(why, "%s: %zu bytes instead of %llu", path, n, (unsigned long long)side->size);
        } else if (strcmp(side->hash, hash) != 0) {
            gdn__text_set(why, "%s: its bytes have changed (hash %s, was %s)", path, hash, side->hash);
        } else if (strlen(side->key) != 32 || !strstr(path, side->key)) {
            gdn__text_set(why, "%s: side file of another entry", side_path);
        } else {
            st = GDN_OK;
        }
    }
    free(text);
    free(side_path);
    if (st == GDN_OK && data) {
        *data = bytes;
        *size = n;
    } else {
        free(bytes);
    }
    return st;
}

/* A hit makes an entry young; on a read-only file system it just stays as old as it is. */
static void touch(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    (void)futimens(fd, NULL);
    (void)close(fd);
}

gdn_status gdn__entry_read(const char *folder, const gdn__key *key, const char *arch, uid_t owner, gdn__cubin *out, gdn_text *why) {
    gdn__side side;
    *out = (gdn__cubin) { 0 };
    char *path = gdn__format("%s/%.2s/%s.cubin", folder, key->hex, key->hex);
    gdn_status st = path ? gdn__entry_check(path, owner, &side, &out->data, &out->size, why) : GDN_E_NOMEM;
    if (st == GDN_OK && strcmp(side.arch, arch) != 0) {
        gdn__text_set(why, "%s: compiled for %s, not for %s", path, side.arch, arch);
        st = GDN_E_IO;
    }
    if (st == GDN_OK) {
        touch(path);
        out->path = path;
        (void)snprintf(out->nvrtc, sizeof out->nvrtc, "%s", side.nvrtc);
        return GDN_OK;
    }
    free(path);
    free(out->data);
    *out = (gdn__cubin) { 0 };
    return st;
}

/* Lines of at most 199 bytes are read back; these values are for people, so a long one may be cut. */
static char *side_text(const gdn__key *key, const gdn__entry_facts *f, const void *data, size_t size, gdn_text *t) {
    char hash[33];
    gdn__hash_hex(data, size, hash);
    gdn__text_set(t, "; a compiled module of gdn; the .cubin beside this file is what the GPU loads\n[cubin]\n");
    gdn__text_add(t, "schema = %d\nkey = %s\nname = %.120s\narch = %s\nnvrtc = %s\n", (int)GDN__CACHE_SCHEMA, key->hex, f->job->name,
                  f->job->arch, f->nvrtc);
    gdn__text_add(t, "size = %zu\nhash = %s\ntime = %lld\nms = %.0f\n", size, hash, (long long)time(NULL), f->ms);
    for (uint32_t i = 0; i < f->job->n_options; i++) gdn__text_add(t, "option = %.160s\n", f->job->options[i]);
    for (uint32_t i = 0; i < f->job->n_headers; i++) gdn__text_add(t, "header = %.160s\n", f->job->header_names[i]);
    return t->buf;
}

gdn_status gdn__entry_write(const char *folder, const gdn__key *key, const gdn__entry_facts *facts, const void *data, size_t size,
                            gdn_text *why) {
    gdn_text t = { NULL, 0, 0 };
    gdn_status st = GDN_E_NOMEM;
    char *shard = gdn__format("%s/%.2s", folder, key->hex), *name = gdn__format("%s.cubin", key->hex),
         *side = gdn__format("%s.ini", key->hex);
    (void)side_text(key, facts, data, size, &t); /* only its length */
    t.cap = t.len + 1;
    t.buf = gdn__alloc((size_t)t.cap);
    if (shard && name && side && t.buf) {
        (void)side_text(key, facts, data, size, &t);
        st = gdn__folder_make(folder, 0755, why);
        if (st == GDN_OK) st = gdn__folder_make(shard, 0755, why);
        /* The side file last: with it the entry becomes readable. */
        if (st == GDN_OK) st = gdn__file_write(shard, name, data, size, why);
        if (st == GDN_OK) st = gdn__file_write(shard, side, t.buf, (size_t)(t.len < t.cap ? t.len : t.cap - 1), why);
    }
    if (st == GDN_E_NOMEM) gdn__text_set(why, "%s", gdn_status_text(st));
    free(t.buf);
    free(side);
    free(name);
    free(shard);
    return st;
}
