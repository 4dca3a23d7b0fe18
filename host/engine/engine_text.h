/* engine_text.h - error lines of the engine: one line, whatever a file has in it. */
#ifndef GDN_ENGINE_TEXT_H
#define GDN_ENGINE_TEXT_H

#include "gdn_status.h"

/* Formats into err (may be NULL), cut to its capacity; control characters become '?', so that a name found in a file cannot
 * break the line. Returns status, so that a reader can say `return gdn__engine_say(err, GDN_E_MODEL, ...)`. */
gdn_status gdn__engine_say(gdn_text *err, gdn_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
