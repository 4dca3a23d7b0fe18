/* fuzz_safetensors.c - any bytes as a safetensors file: refused with one line, or every tensor readable. */
#include "safetensors.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char buf[300] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_st *st = NULL;
    const gdn_status s = gdn_st_open_memory(data, size, "input", &st, &err);
    if (s != GDN_OK) {
        if (st || !buf[0] || strchr(buf, '\n')) abort(); /* an error leaves nothing open and says why, in one line */
        return 0;
    }
    for (uint64_t i = 0; i < gdn_st_count(st); i++) {
        const gdn_st_tensor *t = gdn_st_at(st, i);
        if (gdn_st_find(st, t->name) != t) abort();
        if (!gdn_st_is_float(t)) continue;
        float *out = malloc((size_t)(t->count ? t->count : 1) * sizeof *out);
        if (!out) break;
        gdn_st_read_f32(t, 0, t->count, out);
        free(out);
    }
    gdn_st_close(st);
    return 0;
}
