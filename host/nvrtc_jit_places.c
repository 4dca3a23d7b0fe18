/* nvrtc_jit_places.c - everywhere a cubin may be before it is compiled, and what is remembered. */
#define _GNU_SOURCE /* strverscmp */
#include "nvrtc_jit.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Damage is told once: the entry is compiled and written again. */
static void tell_damage(const gdn__jit *j, gdn_status st, const char *why) {
    if (st == GDN_E_IO) gdn__log_line(&j->log, GDN_LOG_WARN, "cache", "%s: not used", why);
}

gdn_status gdn__jit_recall(gdn__jit *j, const gdn__key *content, gdn_text *err) {
    gdn_status st = GDN_ABSENT;
    (void)pthread_mutex_lock(&j->mutex);
    for (const gdn__jit_note *n = j->notes; n && st == GDN_ABSENT; n = n->next) {
        if (n->status == GDN_OK || strcmp(n->key.hex, content->hex) != 0) continue;
        st = n->status;
        gdn__text_set(err, "%s", n->why);
    }
    (void)pthread_mutex_unlock(&j->mutex);
    return st;
}

void gdn__jit_note_add(gdn__jit *j, const gdn__key *content, gdn_status status, const char *why, const void *data, size_t size) {
    gdn__jit_note *n = gdn__alloc(sizeof *n);
    char *text = gdn__copy(why);
    void *copy = size ? gdn__alloc(size) : NULL;
    if (!n || !text || (size && !copy)) { /* forgetting costs time, nothing else */
        free(copy);
        free(text);
        free(n);
        return;
    }
    if (size) memcpy(copy, data, size);
    *n = (gdn__jit_note) { NULL, *content, status, text, copy, size };
    (void)pthread_mutex_lock(&j->mutex);
    n->next = j->notes;
    j->notes = n;
    (void)pthread_mutex_unlock(&j->mutex);
}

static gdn_status look_memory(gdn__jit *j, const gdn__key *content, gdn__cubin *out) {
    gdn_status st = GDN_ABSENT;
    (void)pthread_mutex_lock(&j->mutex);
    for (const gdn__jit_note *n = j->notes; n && st == GDN_ABSENT; n = n->next) {
        if (n->status != GDN_OK || strcmp(n->key.hex, content->hex) != 0) continue;
        out->data = gdn__alloc(n->size);
        if (!out->data) break;
        memcpy(out->data, n->data, n->size);
        out->size = n->size;
        st = GDN_OK;
    }
    (void)pthread_mutex_unlock(&j->mutex);
    return st;
}

static gdn_status look_shipped(gdn__jit *j, const char *folder, const gdn_compile_job *job, const gdn__key *content, gdn__cubin *out) {
    char why[1024] = "";
    gdn_text text = { why, sizeof why, 0 };
    struct stat st;
    if (!folder || stat(folder, &st) != 0) return GDN_ABSENT;
    /* Its owner is whoever installed it: the folder was named, or configured. */
    gdn_status result = gdn__folder_check(folder, st.st_uid, &text);
    if (result != GDN_OK) {
        if (gdn__jit_first(j, why)) tell_damage(j, result, why);
        return result;
    }
    result = gdn__entry_read(folder, content, job->arch, st.st_uid, out, &text);
    tell_damage(j, result, why);
    return result;
}

gdn_status gdn__jit_look_cached(gdn__jit *j, const gdn_compile_job *job, const char *id, bool tell, gdn__cubin *out) {
    char why[1024] = "";
    gdn_text text = { why, sizeof why, 0 };
    gdn__key key;
    if (!j->cache.root || !*id || j->nocache) return GDN_ABSENT;
    gdn_status st = gdn__cubin_key(job, id, &key);
    char *folder = st == GDN_OK ? gdn__format("%s/%s", j->cache.root, id) : NULL;
    if (!folder) return GDN_ABSENT; /* without memory it is a miss; the compile will say so */
    st = gdn__entry_read(folder, &key, job->arch, geteuid(), out, &text);
    if (tell) tell_damage(j, st, why);
    free(folder);
    return st == GDN_OK ? st : GDN_ABSENT;
}

gdn_status gdn__jit_look(gdn__jit *j, const gdn_compile_job *job, const gdn__key *content, const char *id, gdn__cubin *out) {
    if (j->nocache) return GDN_ABSENT;
    for (size_t i = 0; i < 2; i++)
        if (look_shipped(j, j->shipped[i], job, content, out) == GDN_OK) return GDN_OK;
    if (look_memory(j, content, out) == GDN_OK) return GDN_OK;
    return gdn__jit_look_cached(j, job, id, true, out);
}

static int newest_first(const struct dirent **a, const struct dirent **b) {
    return strverscmp((*b)->d_name, (*a)->d_name);
}
static int is_identity(const struct dirent *e) {
    return e->d_name[0] >= '0' && e->d_name[0] <= '9' && strlen(e->d_name) < GDN__NVRTC_ID;
}

gdn_status gdn__jit_look_any(gdn__jit *j, const gdn_compile_job *job, gdn__cubin *out) {
    struct dirent **list = NULL;
    gdn_status st = GDN_ABSENT;
    if (!j->cache.root || j->nocache) return GDN_ABSENT;
    const int n = scandir(j->cache.root, &list, is_identity, newest_first);
    for (int i = 0; i < n; i++) {
        if (st != GDN_OK) st = gdn__jit_look_cached(j, job, list[i]->d_name, true, out);
        free(list[i]);
    }
    free(list);
    return st;
}
