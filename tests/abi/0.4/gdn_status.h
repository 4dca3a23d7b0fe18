/* gdn_status.h - statuses, caller-owned text, and the two macros that make structs growable.
 *
 * Every function of this project returns a gdn_status: 0 done; positive: declined, and nothing is broken or half done;
 * negative: an error. Long explanations go into a gdn_text that the caller owns. */
#ifndef GDN_STATUS_H
#define GDN_STATUS_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of T up to and including member m: what struct_size is compared with. */
#define GDN_THROUGH(T, m) (offsetof(T, m) + sizeof(((T *)0)->m))
/* True when the peer's struct reaches member m and m is set. */
#define GDN_HAS(p, T, m) ((p)->struct_size >= GDN_THROUGH(T, m) && (p)->m)

/* X(name, value, text). Append only; a value never changes its meaning. */
#define GDN_STATUS_MAP(X)                                                       \
    X(GDN_OK, 0, "done")                                                        \
    X(GDN_REFUSED, 1, "a guard declined; the route names it")                   \
    X(GDN_ABSENT, 2, "this target does not carry it")                           \
    X(GDN_E_ARG, -1, "invalid argument")                                        \
    X(GDN_E_ABI, -2, "ABI version or struct size is not acceptable")            \
    X(GDN_E_LEVER, -3, "a lever is unknown or has a value outside its grammar") \
    X(GDN_E_NODRIVER, -4, "libcuda.so.1 is missing, a stub, or too old")        \
    X(GDN_E_NONVRTC, -5, "NVRTC is missing, too old, or lacks its builtins")    \
    X(GDN_E_ARCH, -6, "the device or NVRTC does not know the architecture")     \
    X(GDN_E_COMPILE, -7, "kernel source did not compile")                       \
    X(GDN_E_LOAD, -8, "a plugin or a compiled image did not load")              \
    X(GDN_E_CAPTURE, -9, "not allowed while a stream is capturing")             \
    X(GDN_E_FORKED, -10, "the context belongs to the parent process")           \
    X(GDN_E_NOMEM, -11, "host or device memory is exhausted")                   \
    X(GDN_E_DRIVER, -12, "a driver call failed")                                \
    X(GDN_E_INTERNAL, -13, "an invariant of the plugin is broken")              \
    X(GDN_E_CHECKED, -14, "a checked plan met a value outside its range")       \
    X(GDN_E_CONF, -15, "a settings file is not acceptable")                     \
    X(GDN_E_IO, -16, "a file could not be read or written")                     \
    X(GDN_E_MODEL, -17, "a checkpoint is malformed or of an unsupported kind")  \
    X(GDN_E_NOTARGET, -18, "no target of that name could be opened")

typedef int32_t gdn_status;
#define GDN_STATUS_ENUM_(name, value, text) name = (value),
enum { GDN_STATUS_MAP(GDN_STATUS_ENUM_) GDN_STATUS_END_ };
#undef GDN_STATUS_ENUM_

/* Caller-owned text. A writer stores at most cap bytes, the final NUL included, and sets len to the full length
 * without the NUL: len >= cap means that the text was cut. buf may be NULL when cap is 0. */
typedef struct gdn_text {
    char *buf;
    uint64_t cap;
    uint64_t len;
} gdn_text;

#endif
