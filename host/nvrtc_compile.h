/* nvrtc_compile.h - NVRTC: opened at run time, checked at once, one source to one cubin. Never PTX.
 *
 * Looked for: the file that GDN_NVRTC names and no other; else libnvrtc.so.13, libnvrtc.so.12, then the same two in
 * /usr/local/cuda/lib64. CUDA_HOME is not looked at: headers are not needed, and a second toolkit must not mix in. */
#ifndef GDN_NVRTC_COMPILE_H
#define GDN_NVRTC_COMPILE_H

#include "cubin_cache.h"

typedef int gdn__nvrtc_result;
enum { GDN__NVRTC_OK = 0, GDN__NVRTC_INVALID_OPTION = 5, GDN__NVRTC_COMPILATION = 6, GDN__NVRTC_BUILTIN = 7 };

/* X(name, parameters): all are required, each answers an nvrtcResult. */
#define GDN__NVRTC_MAP(X)                                                                                                    \
    X(nvrtcVersion, (int *major, int *minor))                                                                                \
    X(nvrtcGetNumSupportedArchs, (int *n))                                                                                   \
    X(nvrtcGetSupportedArchs, (int *archs))                                                                                  \
    X(nvrtcCreateProgram,                                                                                                    \
      (void **prog, const char *src, const char *name, int n_headers, const char *const *headers, const char *const *names)) \
    X(nvrtcDestroyProgram, (void **prog))                                                                                    \
    X(nvrtcCompileProgram, (void *prog, int n_options, const char *const *options))                                          \
    X(nvrtcGetProgramLogSize, (void *prog, size_t *size))                                                                    \
    X(nvrtcGetProgramLog, (void *prog, char *log))                                                                           \
    X(nvrtcGetCUBINSize, (void *prog, size_t *size))                                                                         \
    X(nvrtcGetCUBIN, (void *prog, char *cubin))

enum { GDN__NVRTC_MAX_ARCHS = 64 };
typedef struct gdn__nvrtc {
#define GDN__FIELD(name, params) gdn__nvrtc_result(*name) params;
    GDN__NVRTC_MAP(GDN__FIELD)
#undef GDN__FIELD
    const char *(*nvrtcGetErrorString)(gdn__nvrtc_result r);
    void *library; /* stays mapped once it compiled something */
    char *path;
    int major, minor;
    char id[GDN__NVRTC_ID]; /* version and a hash of the sizes of the library and its builtins */
    int archs[GDN__NVRTC_MAX_ARCHS];
    int n_archs;
} gdn__nvrtc;

/* asked: GDN_NVRTC, or NULL. Compiles one line to see that the builtins are there. On failure nothing is kept. */
gdn_status gdn__nvrtc_open(const char *asked, const gdn__log *log, gdn__nvrtc *out, gdn_text *err);
void gdn__nvrtc_close(gdn__nvrtc *n); /* the library stays mapped */

/* GDN_E_ARCH: no exact architecture, or one that this NVRTC does not know; err names both and the list. */
gdn_status gdn__nvrtc_knows(const gdn__nvrtc *n, const char *arch, gdn_text *err);

typedef struct gdn__compiled {
    void *data;
    size_t size;
    char *log; /* the whole compiler log; NULL: empty or no memory */
    double ms;
} gdn__compiled;
void gdn__compiled_free(gdn__compiled *c);
/* [any] extra: one more option, or NULL. GDN_E_ARCH, GDN_E_COMPILE, GDN_E_NONVRTC; the log is in err in full and in out. */
gdn_status gdn__nvrtc_compile(const gdn__nvrtc *n, const gdn_compile_job *job, const char *extra, gdn__compiled *out, gdn_text *err);
double gdn__now_ms(void);

#endif
