/* cuda_backend.h - the GPU behind abi/gdn_backend.h: driver, NVRTC and cubin cache. For choose.c and generation.c.
 *
 * Each open backend is independent: its log, its contexts (the driver counts primary contexts), its modules and what it
 * remembers. Threads: all of its entries [any], as gdn_backend.h says. */
#ifndef GDN_CUDA_BACKEND_H
#define GDN_CUDA_BACKEND_H

#include "host_internal.h"

/* A backend of all devices. No context is made until a device is used; a machine with a driver and no device gives a backend
 * of 0 devices. On failure *out is NULL: GDN_E_NODRIVER (with the file that is wrong) or what the driver said. */
gdn_status gdn__cuda_backend_open(const gdn__log *log, const gdn__env *env, const gdn_backend **out, gdn_text *err);
/* After the last context made with it has ended. Modules that are left are unloaded, primary contexts are given back. */
void gdn__cuda_backend_close(const gdn_backend *backend);

/* The devices, without making a context; *n is how many there are, at most cap are written. Their `name` is NULL. */
gdn_status gdn__cuda_probe(gdn_device *out, uint32_t cap, uint32_t *n, gdn_text *err);

/* The same with another driver file; for tests. */
gdn_status gdn__cuda_backend_open_file(const char *file, const gdn__log *log, const gdn__env *env, const gdn_backend **out, gdn_text *err);
gdn_status gdn__cuda_probe_file(const char *file, gdn_device *out, uint32_t cap, uint32_t *n, gdn_text *err);

/* ---- architectures: "sm_90a" is number 90, suffix 'a' ---- */
bool gdn__arch_read(const char *arch, uint32_t *number, char *suffix); /* false: not sm_<digits>[a|f] */
/* May code for arch run on a device of that capability? a: only the same; f: same family, not older; plain: same major. */
bool gdn__arch_fits(const char *arch, uint32_t cc_major, uint32_t cc_minor);

#endif
