/* cubin_cache.h - compiled modules on disk. Content decides the name; every read is verified; every write is whole or absent.
 *
 *   key     XXH3-128 over: schema number, arch, NVRTC identity, each option, each header's name and text, source, name; each
 *           with its length in front, in their order
 *   file    <folder>/<first two digits>/<key>.cubin   raw cubin: readelf and cuobjdump read it
 *           <folder>/<first two digits>/<key>.ini     sizes, hash, arch, options, NVRTC, time
 *   cache   <base>/v1/<NVRTC identity>/...            base: GDN_CACHE_DIR, $XDG_CACHE_HOME/gdn, $HOME/.cache/gdn
 *   shipped <folder>/...                              the key's NVRTC identity is empty, so that it is found before NVRTC is
 *           opened and whichever NVRTC is there
 *   <base>/v1/nvrtc.ini  the NVRTC last used: its file, size, time and identity, so that a warm start opens none
 *   <base>/v1/bad/       entries that the driver refused
 *
 * The hash finds damage; safety comes from the owner and mode checks: folders and files must belong to this user or root
 * and not be writable by everybody (sticky folders may). */
#ifndef GDN_CUBIN_CACHE_H
#define GDN_CUBIN_CACHE_H

#include "host_internal.h"
#include <sys/stat.h>
#include <sys/types.h>

enum { GDN__CACHE_SCHEMA = 1, GDN__CACHE_DEFAULT_MIB = 256, GDN__STALE_SECONDS = 3600 };
enum { GDN__NVRTC_ID = 40 /* "13.0-1a2b3c4d" and its NUL */ };

typedef struct gdn__key {
    char hex[33];
} gdn__key;

typedef struct gdn__cubin {
    void *data; /* NULL: none */
    size_t size;
    char *path; /* the file it was read from; NULL: compiled in this process */
    char nvrtc[GDN__NVRTC_ID];
    double ms; /* that its compile took, when it was compiled in this process */
} gdn__cubin;
void gdn__cubin_free(gdn__cubin *c);

/* ---- cubin_cache_key.c ---- */
/* nvrtc "": the key of shipped cubins. GDN_E_NOMEM is all that can fail. */
gdn_status gdn__cubin_key(const gdn_compile_job *job, const char *nvrtc, gdn__key *out);
void gdn__hash_hex(const void *data, size_t size, char out[33]);

/* ---- cubin_cache_entry.c ---- */
/* GDN_OK; GDN_ABSENT: not there, or not readable for us; GDN_E_IO: there and damaged or not to be trusted, `why` says how.
 * owner: a further user whose files are accepted (that of a shipped folder). */
gdn_status gdn__entry_read(const char *folder, const gdn__key *key, const char *arch, uid_t owner, gdn__cubin *out, gdn_text *why);
typedef struct gdn__entry_facts {
    const gdn_compile_job *job;
    const char *nvrtc;
    double ms;
} gdn__entry_facts;
gdn_status gdn__entry_write(const char *folder, const gdn__key *key, const gdn__entry_facts *facts, const void *data, size_t size,
                            gdn_text *why);

/* What a side file says. */
typedef struct gdn__side {
    uint32_t schema;
    uint64_t size, time;
    double ms;
    char key[33], hash[33], arch[16], name[128], nvrtc[GDN__NVRTC_ID], options[512];
} gdn__side;
/* Both files of an entry: path ends in ".cubin". The status is that of gdn__entry_read, data may be NULL. */
gdn_status gdn__entry_check(const char *path, uid_t owner, gdn__side *side, void **data, size_t *size, gdn_text *why);

/* ---- cubin_cache_file.c ---- */
/* Whole file, or nothing: temporary file in the folder, written, synced, renamed; the folder is synced. */
gdn_status gdn__file_write(const char *folder, const char *name, const void *data, size_t size, gdn_text *why);
/* A regular file of an accepted owner, with a NUL behind it. GDN_ABSENT: not there or not readable. */
gdn_status gdn__file_read(const char *path, uid_t owner, size_t limit, char **data, size_t *size, gdn_text *why);
/* Makes the last component only. */
gdn_status gdn__folder_make(const char *path, mode_t mode, gdn_text *why);
/* A folder of ours or root's (owner too, if given) that others cannot replace files in. */
gdn_status gdn__folder_check(const char *path, uid_t owner, gdn_text *why);
/* One process at a time for a key. -1: cannot be had (the reason is in why); compile, but do not publish. */
int gdn__key_lock(const char *folder, const gdn__key *key, gdn_text *why);
void gdn__key_unlock(const char *folder, const gdn__key *key, int fd);

/* ---- cubin_cache.c ---- */
typedef struct gdn__cache {
    char *root; /* <base>/v1; NULL: memory only */
    bool writable;
    char *why; /* not writable: the reason, with folder and setting; NULL also without memory for it */
    uint64_t max_bytes;
    int64_t opened; /* seconds; entries used since then are never removed */
} gdn__cache;
/* Never fails: a folder that cannot be used gives memory only, one that can only be read is read; why says the reason, and so
 * does the text (may be NULL). Nothing is logged: it is no fault until something compiled has to be kept. */
void gdn__cache_open(gdn__cache *c, const gdn__env *env, const gdn__log *log, gdn_text *why);
void gdn__cache_close(gdn__cache *c);
/* The folder that gdn__cache_open would make, when it is not there: nothing is made here. NULL: it is there, or cannot be made. Caller
 * frees. writable: whether it could be. */
char *gdn__cache_not_yet(const gdn__env *env, bool *writable);
uint64_t gdn__cache_bound(const gdn__env *env, const gdn__log *log); /* bytes */
/* Moves a refused entry into bad/. false: it could not be moved. */
bool gdn__cache_quarantine(const gdn__cache *c, const char *path);

/* The record of the NVRTC last used. asked: GDN_NVRTC or "". */
typedef struct gdn__nvrtc_record {
    char path[512], asked[512], search[33], id[GDN__NVRTC_ID];
    uint64_t size;
    int64_t mtime_ns;
} gdn__nvrtc_record;
/* The identity of the NVRTC that would be opened, when the record says so and its file is unchanged. */
bool gdn__cache_known_nvrtc(const gdn__cache *c, const char *asked, char id[GDN__NVRTC_ID]);
void gdn__cache_note_nvrtc(const gdn__cache *c, const char *asked, const char *path, const char *id);

/* ---- cubin_cache_walk.c ---- */
enum { GDN__IS_ENTRY, GDN__IS_SIDE, GDN__IS_TEMP, GDN__IS_LOCK, GDN__IS_OTHER };
typedef struct gdn__found {
    const char *path;
    uint32_t kind;
    bool bad; /* in bad/ */
    struct stat st;
} gdn__found;
/* Calls for every file below root. GDN_ABSENT: no such folder. */
gdn_status gdn__cache_walk(const char *root, void (*each)(void *user, const gdn__found *f), void *user, gdn_text *why);
typedef struct gdn__trimmed {
    uint64_t entries, bytes; /* what is left  */
    uint64_t removed, removed_bytes;
} gdn__trimmed;
/* Removes stale temporary files and locks, and the entries used longest ago until max_bytes hold; none used since `since`.
 * all_bad: quarantined and damaged ones as well. */
gdn_status gdn__cache_trim(const char *root, uint64_t max_bytes, int64_t since, bool all_bad, gdn__trimmed *out, gdn_text *why);

#endif
