/* nvrtc_jit_build.c - one module compiled and published, by one process at a time for a key; GDN_JIT_PRINT and GDN_JIT_DUMP. */
#include "nvrtc_jit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_command(const gdn__jit *j, const gdn_compile_job *job) {
    char line[2048];
    gdn_text t = { line, sizeof line, 0 };
    gdn__text_set(&t, "nvcc -cubin -arch=%s", job->arch);
    for (uint32_t i = 0; i < job->n_options; i++) gdn__text_add(&t, " %s", job->options[i]);
    gdn__text_add(&t, " %s", job->name);
    gdn__log_line(&j->log, GDN_LOG_INFO, "nvrtc", "%s", line);
}

static void dump_one(const gdn__jit *j, const char *stem, const char *tail, const void *data, size_t size) {
    char why[1024] = "";
    gdn_text text = { why, sizeof why, 0 };
    char *name = gdn__format("%s%s", stem, tail);
    for (char *p = name; p && *p; p++)
        if (*p == '/') *p = '_';
    if (!name || gdn__file_write(j->dump, name, data, size, &text) != GDN_OK)
        gdn__log_line(&j->log, GDN_LOG_WARN, "nvrtc", "GDN_JIT_DUMP: %s", name ? why : gdn_status_text(GDN_E_NOMEM));
    free(name);
}

static void dump(const gdn__jit *j, const gdn_compile_job *job, const gdn__compiled *c) {
    char *stem = gdn__format("%s.%s", job->name, job->arch);
    if (!stem) return;
    dump_one(j, stem, ".cu", job->source, strlen(job->source));
    for (uint32_t i = 0; i < job->n_headers; i++) dump_one(j, job->header_names[i], "", job->headers[i], strlen(job->headers[i]));
    if (c->data) dump_one(j, stem, ".cubin", c->data, c->size);
    if (c->log) dump_one(j, stem, ".log", c->log, strlen(c->log));
    free(stem);
}

/* The folder of this NVRTC and the shard of the key, or NULL: then nothing is published. */
static char *shard_folder(const gdn__jit *j, const gdn__key *key, gdn_text *why) {
    char *id = gdn__format("%s/%s", j->cache.root, j->nvrtc.id);
    char *shard = id ? gdn__format("%s/%.2s", id, key->hex) : NULL;
    const bool made = shard && gdn__folder_make(id, 0755, why) == GDN_OK && gdn__folder_make(shard, 0755, why) == GDN_OK;
    if (!shard) gdn__text_set(why, "%s", gdn_status_text(GDN_E_NOMEM));
    free(id);
    if (made) return shard;
    free(shard);
    return NULL;
}

static bool publish(gdn__jit *j, const gdn_compile_job *job, const gdn__key *key, const gdn__compiled *c) {
    char why[1024] = "";
    gdn_text text = { why, sizeof why, 0 };
    const gdn__entry_facts facts = { job, j->nvrtc.id, c->ms };
    char *folder = gdn__format("%s/%s", j->cache.root, j->nvrtc.id);
    const bool kept = folder && gdn__entry_write(folder, key, &facts, c->data, c->size, &text) == GDN_OK;
    if (!kept) gdn__jit_not_kept(j, job, folder ? why : gdn_status_text(GDN_E_NOMEM));
    free(folder);
    return kept;
}

gdn_status gdn__jit_build(gdn__jit *j, const gdn_compile_job *job, const gdn__key *content, bool look, gdn__cubin *out, bool *hit,
                          double *ms, gdn_text *why) {
    char reason[512] = "";
    gdn_text text = { reason, sizeof reason, 0 };
    const bool keep = j->cache.writable && !j->nocache;
    gdn__key key;
    gdn__compiled c = { 0 };
    char *shard = NULL;
    int lock = -1;
    *hit = false;
    *ms = 0;
    gdn_status st = gdn__cubin_key(job, j->nvrtc.id, &key);
    if (st != GDN_OK) {
        gdn__text_set(why, "%s: %s", job->name, gdn_status_text(st));
        return st;
    }
    if (keep) {
        shard = shard_folder(j, &key, &text);
        if (shard) lock = gdn__key_lock(shard, &key, &text);
        if (lock >= 0 && look && gdn__jit_look_cached(j, job, j->nvrtc.id, false, out) == GDN_OK) { /* another process was first */
            *hit = true;
            goto out;
        }
    }
    if (j->print) print_command(j, job);
    st = gdn__nvrtc_compile(&j->nvrtc, job, NULL, &c, why);
    *ms = c.ms;
    if (j->dump) dump(j, job, &c);
    if (st != GDN_OK) {
        if (st == GDN_E_COMPILE || st == GDN_E_ARCH) gdn__jit_note_add(j, content, st, why->buf ? why->buf : "", NULL, 0);
        goto out;
    }
    if (c.log) gdn__log_text(&j->log, GDN_LOG_DEBUG, "nvrtc", c.log);
    if (!keep && !j->nocache) gdn__jit_memory_only(j);
    if (keep && lock < 0) gdn__jit_not_kept(j, job, reason);
    if (!j->nocache && (lock < 0 || !publish(j, job, &key, &c))) /* then this process at least compiles it once only */
        gdn__jit_note_add(j, content, GDN_OK, "", c.data, c.size);
    *out = (gdn__cubin) { .data = c.data, .size = c.size, .ms = c.ms };
    (void)snprintf(out->nvrtc, sizeof out->nvrtc, "%s", j->nvrtc.id);
    c.data = NULL;
out:
    gdn__compiled_free(&c);
    if (lock >= 0) gdn__key_unlock(shard, &key, lock);
    free(shard);
    return st;
}
