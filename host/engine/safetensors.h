/* safetensors.h - reads the safetensors container: u64 header length, JSON header, raw tensor bytes.
 *
 * The header maps a name to {"dtype", "shape", "data_offsets": [begin, end)}, offsets counted from the header's end; the
 * optional "__metadata__" maps strings to strings. The tensors must tile the data exactly: no hole, no overlap, no rest.
 * Everything is checked when the file is opened, so that later reads need no checks. A file is mapped, not copied: it
 * must not be shortened while it is open. */
#ifndef GDN_SAFETENSORS_H
#define GDN_SAFETENSORS_H

#include "gdn_status.h"
#include <stdbool.h>

/* X(name, bytes an element) */
#define GDN_ST_DTYPE_MAP(X) \
    X(BOOL, 1)              \
    X(U8, 1)                \
    X(I8, 1)                \
    X(F8_E4M3, 1) X(F8_E5M2, 1) X(I16, 2) X(U16, 2) X(F16, 2) X(BF16, 2) X(I32, 4) X(U32, 4) X(F32, 4) X(I64, 8) X(U64, 8) X(F64, 8)
#define GDN_ST_ENUM_(name, bytes) GDN_ST_##name,
enum { GDN_ST_DTYPE_MAP(GDN_ST_ENUM_) GDN_ST_DTYPES };
#undef GDN_ST_ENUM_

enum { GDN_ST_MAX_RANK = 8, GDN_ST_MAX_HEADER = 100000000 /* bytes, as in the reference reader */ };

typedef struct gdn_st_tensor {
    const char *name;
    const unsigned char *data; /* little endian; any alignment */
    uint64_t begin, bytes, count;
    uint64_t shape[GDN_ST_MAX_RANK];
    uint32_t rank, dtype; /* GDN_ST_* */
} gdn_st_tensor;

typedef struct gdn_st gdn_st;

/* Errors: GDN_E_IO (the file cannot be read), GDN_E_MODEL (it is malformed), GDN_E_NOMEM; err names file and reason. */
gdn_status gdn_st_open(const char *path, gdn_st **out, gdn_text *err);
/* The same from bytes that the caller keeps alive; label stands for the file name in messages. */
gdn_status gdn_st_open_memory(const void *bytes, uint64_t size, const char *label, gdn_st **out, gdn_text *err);
void gdn_st_close(gdn_st *st); /* NULL is ignored */

const char *gdn_st_label(const gdn_st *st);
uint64_t gdn_st_count(const gdn_st *st);
const gdn_st_tensor *gdn_st_at(const gdn_st *st, uint64_t i);         /* sorted by name; NULL past the end */
const gdn_st_tensor *gdn_st_find(const gdn_st *st, const char *name); /* NULL: not there */
const char *gdn_st_metadata(const gdn_st *st, const char *key);       /* NULL: not there */
const char *gdn_st_dtype_name(uint32_t dtype);
bool gdn_st_is_float(const gdn_st_tensor *t); /* BF16, F16 or F32: what gdn_st_read_f32 takes */
/* Widens elements [first, first + n) to f32. */
void gdn_st_read_f32(const gdn_st_tensor *t, uint64_t first, uint64_t n, float *out);

#endif
