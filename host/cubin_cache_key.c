/* cubin_cache_key.c - the name of a compiled module: a hash over everything that decides its bytes. */
#include "cubin_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static void hex_of(XXH128_hash_t h, char out[33]) {
    (void)snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

void gdn__hash_hex(const void *data, size_t size, char out[33]) {
    hex_of(XXH3_128bits(data, size), out);
}

static void add_number(XXH3_state_t *s, uint64_t v) {
    unsigned char b[8]; /* little endian on every machine */
    for (int i = 0; i < 8; i++) b[i] = (unsigned char)(v >> (8 * i));
    (void)XXH3_128bits_update(s, b, sizeof b);
}

/* The length goes first, so that "ab","c" and "a","bc" differ. */
static void add_text(XXH3_state_t *s, const char *text) {
    const size_t n = strlen(text);
    add_number(s, n);
    (void)XXH3_128bits_update(s, text, n);
}

gdn_status gdn__cubin_key(const gdn_compile_job *job, const char *nvrtc, gdn__key *out) {
    XXH3_state_t *s = XXH3_createState();
    *out = (gdn__key) { "" };
    if (!s) return GDN_E_NOMEM;
    (void)XXH3_128bits_reset(s);
    add_number(s, GDN__CACHE_SCHEMA);
    add_text(s, job->arch);
    add_text(s, nvrtc);
    add_number(s, job->n_options);
    for (uint32_t i = 0; i < job->n_options; i++) add_text(s, job->options[i]);
    add_number(s, job->n_headers);
    for (uint32_t i = 0; i < job->n_headers; i++) {
        add_text(s, job->header_names[i]);
        add_text(s, job->headers[i]);
    }
    add_text(s, job->source);
    add_text(s, job->name);
    hex_of(XXH3_128bits_digest(s), out->hex);
    (void)XXH3_freeState(s);
    return GDN_OK;
}

void gdn__cubin_free(gdn__cubin *c) {
    free(c->data);
    free(c->path);
    *c = (gdn__cubin) { 0 };
}
