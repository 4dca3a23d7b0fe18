/* generate_held.c - see generate_held.h. */
#include "generate_held.h"
#include "model_config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 << 20 };

int cli_read_tokens(const cli_common *c, const char *path, const char *text, uint32_t **tokens, uint64_t *n) {
    char buf[300] = "", *file = NULL;
    gdn_text err = { buf, sizeof buf, 0 };
    uint64_t size = path ? 0 : strlen(text);
    *tokens = NULL;
    if (path && gdn__read_file(path, MAX_BYTES, &file, &size, &err) != GDN_OK) {
        cli_error(c, "%s", buf);
        return CLI_NO;
    }
    const char *bytes = file ? file : text;
    int rc = CLI_OK;
    *tokens = malloc((size_t)(size ? size : 1) * sizeof **tokens);
    if (!size) {
        cli_error(c, "%s: the file is empty", path);
        rc = CLI_NO;
    } else if (!*tokens) {
        cli_error(c, "out of memory");
        rc = CLI_NO;
    } else {
        for (uint64_t i = 0; i < size; i++) (*tokens)[i] = (unsigned char)bytes[i];
    }
    *n = size;
    free(file);
    return rc;
}

bool held_measure(const cli_common *c, gdn_engine *e, const held *h, double *out) {
    char buf[300] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    const gdn_status s = gdn_engine_perplexity(e, h->tokens, h->n, out, &err);
    if (s != GDN_OK) cli_error(c, "held text: %s", buf[0] ? buf : gdn_status_text(s));
    return s == GDN_OK;
}

static void print_projection(void *user, const char *name, uint32_t n, uint32_t k, const char *why) {
    (void)user;
    fprintf(stderr, "  %s, %u x %u: %s%s\n", name, n, k, why ? "stays as it was: " : "NVFP4", why ? why : "");
}

static void add_projection(void *user, const char *name, uint32_t n, uint32_t k, const char *why) {
    json_array_append_new(
        user, json_pack("{s:s,s:I,s:I,s:b,s:s?}", "name", name, "n", (json_int_t)n, "k", (json_int_t)k, "nvfp4", !why, "why", why));
}

static void count_projection(void *user, const char *name, uint32_t n, uint32_t k, const char *why) {
    (void)name, (void)n, (void)k;
    *(uint32_t *)user += why == NULL;
}

uint32_t held_projections(const gdn_engine *e) {
    uint32_t n = 0;
    gdn_engine_projections(e, count_projection, &n);
    return n;
}

/* JSON has no NaN. */
static json_t *real_or_null(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

void held_print(const gdn_engine *e, const held *h) {
    fprintf(stderr, "W4A4, projections of every layer:\n");
    gdn_engine_projections(e, print_projection, NULL);
    fprintf(stderr, "perplexity of the held text (%llu tokens): %.4f with the checkpoint's weights, %.4f with W4A4\n",
            (unsigned long long)h->n, h->before, h->after);
}

json_t *held_document(const gdn_engine *e, const held *h) {
    json_t *projections = json_array();
    gdn_engine_projections(e, add_projection, projections);
    return json_pack("{s:I,s:o,s:o,s:o}", "held_tokens", (json_int_t)h->n, "perplexity_before", real_or_null(h->before), "perplexity_after",
                     real_or_null(h->after), "projections", projections);
}
