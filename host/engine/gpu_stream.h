/* gpu_stream.h - the engine's stream on a CUDA device, and work that is captured on it once and replayed.
 *
 * Kernels and memory go through libgdn; this is the rest: a stream, capture, and the device's context for a library that wants it
 * current. The entries are taken from the driver at run time, at pinned versions. One thread at a time. */
#ifndef GDN_ENGINE_GPU_STREAM_H
#define GDN_ENGINE_GPU_STREAM_H

#include "gdn_status.h"
#include <stdbool.h>

typedef struct gdn__stream gdn__stream;

/* own: a non-blocking stream of its own, which may be captured; else the legacy stream (NULL), for a caller that launches there.
 * Errors: GDN_E_NODRIVER, or what the driver said. */
gdn_status gdn__stream_open(int32_t ordinal, bool own, gdn__stream **out, gdn_text *err);
void gdn__stream_close(gdn__stream *s); /* NULL is ignored */
/* What gdn_launch_args.stream takes; NULL for no stream at all. */
void *gdn__stream_handle(const gdn__stream *s);

/* Makes the device's context the thread's, until leave. */
gdn_status gdn__stream_enter(gdn__stream *s);
void gdn__stream_leave(gdn__stream *s);

/* Enqueues; nothing else of the stream may be asked for meanwhile. */
typedef gdn_status (*gdn__stream_work)(void *user);
/* Captures what `work` enqueues. Nothing of it runs; on failure nothing is kept, and the stream is as before. */
gdn_status gdn__stream_capture(gdn__stream *s, gdn__stream_work work, void *user, void **graph, gdn_text *err);
gdn_status gdn__stream_replay(gdn__stream *s, void *graph);
void gdn__stream_drop(gdn__stream *s, void *graph); /* NULL is ignored */

#endif
