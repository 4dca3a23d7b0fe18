/* engine_rows.h - the text of engine_rows.cu and of the headers it includes, embedded when the engine is built (plugin/embed.cmake). */
#ifndef GDN_ENGINE_ROWS_H
#define GDN_ENGINE_ROWS_H

#include <stdint.h>

extern const uint32_t gdn__engine_headers, gdn__engine_sources;
extern const char *const gdn__engine_headers_names[], *const gdn__engine_headers_texts[];
extern const char *const gdn__engine_sources_names[], *const gdn__engine_sources_texts[];

/* X(entry, what follows gdn_engine_ in its name) */
#define GDN__ROWS_MAP(X)  \
    X(EMBED, embed)       \
    X(RMS_NORM, rms_norm) \
    X(ADD, add)           \
    X(SILU_MUL, silu_mul)
#define GDN__ROWS_ENUM_(id, name) GDN__ROWS_##id,
enum { GDN__ROWS_MAP(GDN__ROWS_ENUM_) GDN__ROWS_ENTRIES };
#undef GDN__ROWS_ENUM_
enum { GDN__ROWS_BLOCK = 256 };

#endif
