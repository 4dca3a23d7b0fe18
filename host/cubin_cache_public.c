/* cubin_cache_public.c - gdn_cache_each, gdn_cache_prune. */
#include "cubin_cache.h"
#include "gdn_cubins.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* GDN_OK and c->root NULL: there is none yet. */
static gdn_status open_cache(gdn__cache *c, gdn_cache_sums *sums, gdn_text *folder, gdn_text *err) {
    const gdn__log silent = { NULL, NULL, GDN_LOG_ERROR };
    const gdn__env *env = gdn__env_shared();
    char why[1024] = "";
    gdn_text text = { why, sizeof why, 0 };
    gdn__text_set(folder, "%s", "");
    if (!sums || sums->struct_size < GDN_THROUGH(gdn_cache_sums, max_bytes)) {
        gdn__text_set(err, "gdn_cache_sums.struct_size is too small");
        return GDN_E_ARG;
    }
    *sums = (gdn_cache_sums) { .struct_size = (uint32_t)sizeof *sums };
    if (!env) {
        gdn__text_set(err, "%s", gdn_status_text(GDN_E_NOMEM));
        return GDN_E_NOMEM;
    }
    bool could;
    char *none = gdn__cache_not_yet(env, &could);
    if (none) { /* looking at it makes no folder */
        *c = (gdn__cache) { .max_bytes = gdn__cache_bound(env, &silent) };
        gdn__text_set(folder, "%s", none);
        free(none);
        sums->writable = could;
        sums->max_bytes = c->max_bytes;
        return GDN_OK;
    }
    gdn__cache_open(c, env, &silent, &text);
    if (!c->root) {
        gdn__text_set(err, "no cache: %s", why);
        gdn__cache_close(c);
        return GDN_E_IO;
    }
    gdn__text_set(folder, "%s", c->root);
    sums->writable = c->writable;
    sums->max_bytes = c->max_bytes;
    return GDN_OK;
}

typedef struct listing {
    void (*each)(void *user, const gdn_cache_row *row);
    void *user;
    gdn_cache_sums *sums;
} listing;

static void list_one(void *user, const gdn__found *f) {
    const listing *l = user;
    char why[1024] = "";
    gdn_text text = { why, sizeof why, 0 };
    gdn__side side = { 0 };
    if (f->kind != GDN__IS_ENTRY) return;
    const gdn_status st = gdn__entry_check(f->path, geteuid(), &side, NULL, NULL, &text);
    const gdn_cache_row row = { .struct_size = (uint32_t)sizeof row,
                                .status = st,
                                .file = f->path,
                                .module = side.name,
                                .arch = side.arch,
                                .nvrtc = side.nvrtc,
                                .options = side.options,
                                .reason = st == GDN_OK ? NULL : why,
                                .bytes = (uint64_t)f->st.st_size,
                                .compiled = side.time,
                                .used = f->st.st_mtim.tv_sec > 0 ? (uint64_t)f->st.st_mtim.tv_sec : 0,
                                .set_aside = f->bad,
                                .ms = side.ms };
    l->sums->entries++;
    l->sums->bytes += row.bytes;
    if (l->each) l->each(l->user, &row);
}

gdn_status gdn_cache_each(void (*each)(void *user, const gdn_cache_row *row), void *user, gdn_cache_sums *sums, gdn_text *folder,
                          gdn_text *err) {
    gdn__cache c;
    gdn__text_set(err, "%s", "");
    gdn_status st = open_cache(&c, sums, folder, err);
    if (st != GDN_OK || !c.root) return st;
    listing l = { each, user, sums };
    st = gdn__cache_walk(c.root, list_one, &l, err);
    gdn__cache_close(&c);
    return st;
}

gdn_status gdn_cache_prune(uint64_t max_bytes, gdn_cache_sums *sums, gdn_text *folder, gdn_text *err) {
    gdn__cache c;
    gdn__trimmed t;
    gdn__text_set(err, "%s", "");
    gdn_status st = open_cache(&c, sums, folder, err);
    if (st != GDN_OK || !c.root) return st;
    if (!c.writable) {
        gdn__text_set(err, "%s cannot be written", c.root);
        st = GDN_E_IO;
    } else {
        st = gdn__cache_trim(c.root, max_bytes == UINT64_MAX ? c.max_bytes : max_bytes, INT64_MAX, true, &t, err);
        sums->entries = t.entries;
        sums->bytes = t.bytes;
        sums->removed = t.removed;
        sums->removed_bytes = t.removed_bytes;
    }
    gdn__cache_close(&c);
    return st;
}
