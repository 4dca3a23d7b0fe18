/* cuda_driver.h - the CUDA driver, opened at run time. Own declarations of the little that is used, so that building needs
 * no toolkit and running needs no driver until a GPU target is asked for.
 *
 * Only libcuda.so.1 is opened, only cuGetProcAddress is taken from it by name; the rest comes through that with the version
 * each signature below was written for. Handles of the driver are void *, devices int, device addresses uint64_t. */
#ifndef GDN_CUDA_DRIVER_H
#define GDN_CUDA_DRIVER_H

#include "host_internal.h"

typedef int gdn__cu_result; /* CUresult */

/* CUresult */
enum {
    GDN__CU_OK = 0,
    GDN__CU_OUT_OF_MEMORY = 2,
    GDN__CU_STUB_LIBRARY = 34,
    GDN__CU_NO_DEVICE = 100,
    GDN__CU_INVALID_IMAGE = 200,
    GDN__CU_INVALID_CONTEXT = 201,
    GDN__CU_NO_BINARY_FOR_GPU = 209,
    GDN__CU_INVALID_PTX = 218,
    GDN__CU_UNSUPPORTED_PTX_VERSION = 222,
    GDN__CU_INVALID_SOURCE = 300,
    GDN__CU_INVALID_HANDLE = 400,
    GDN__CU_NOT_FOUND = 500,
    GDN__CU_CAPTURE_UNSUPPORTED = 900,
    GDN__CU_CAPTURE_IMPLICIT = 906 /* the legacy stream was asked while another stream of its context captures */
};
/* CUdevice_attribute */
enum { GDN__CU_DEV_SM_COUNT = 16, GDN__CU_DEV_CC_MAJOR = 75, GDN__CU_DEV_CC_MINOR = 76, GDN__CU_DEV_SMEM_OPTIN = 97 };
/* CUfunction_attribute */
enum { GDN__CU_FUNC_NUM_REGS = 4, GDN__CU_FUNC_MAX_DYNAMIC_SMEM = 8 };
/* CUjit_option */
enum { GDN__CU_JIT_INFO_LOG = 3, GDN__CU_JIT_INFO_LOG_BYTES = 4, GDN__CU_JIT_ERROR_LOG = 5, GDN__CU_JIT_ERROR_LOG_BYTES = 6 };
/* CUstreamCaptureStatus, CUstreamCaptureMode, CUdriverProcAddress_flags */
enum { GDN__CU_CAPTURE_NONE = 0, GDN__CU_MODE_RELAXED = 2, GDN__CU_PROC_LEGACY_STREAM = 1 };

/* CUlaunchAttribute: 8 bytes of which the first 4 are which one it is, then 64 of its value; CUlaunchConfig. */
typedef struct gdn__cu_launch_attribute {
    int id, pad;
    union {
        int on;
        char bytes[64];
    } value;
} gdn__cu_launch_attribute;
enum { GDN__CU_LAUNCH_EARLY = 6 /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */ };
typedef struct gdn__cu_launch {
    unsigned grid[3], block[3], smem;
    void *stream;
    gdn__cu_launch_attribute *attributes;
    unsigned n_attributes;
} gdn__cu_launch;

/* X(name, version of the signature, parameters). Every one answers a CUresult. A driver without one of the first list is
 * refused by name; entries of the second may be NULL. */
#define GDN__CUDA_REQUIRED(X)                                                                                                   \
    X(cuInit, 2000, (unsigned flags))                                                                                           \
    X(cuDriverGetVersion, 2020, (int *version))                                                                                 \
    X(cuGetErrorName, 6000, (gdn__cu_result error, const char **text))                                                          \
    X(cuGetErrorString, 6000, (gdn__cu_result error, const char **text))                                                        \
    X(cuDeviceGetCount, 2000, (int *count))                                                                                     \
    X(cuDeviceGet, 2000, (int *device, int ordinal))                                                                            \
    X(cuDeviceGetName, 2000, (char *name, int len, int device))                                                                 \
    X(cuDeviceGetAttribute, 2000, (int *value, int attribute, int device))                                                      \
    X(cuDeviceTotalMem, 3020, (size_t * bytes, int device))                                                                     \
    X(cuDevicePrimaryCtxRetain, 7000, (void **ctx, int device))                                                                 \
    X(cuDevicePrimaryCtxRelease, 11000, (int device))                                                                           \
    X(cuCtxGetCurrent, 4000, (void **ctx))                                                                                      \
    X(cuCtxPushCurrent, 4000, (void *ctx))                                                                                      \
    X(cuCtxPopCurrent, 4000, (void **ctx))                                                                                      \
    X(cuThreadExchangeStreamCaptureMode, 10010, (int *mode))                                                                    \
    X(cuStreamIsCapturing, 10000, (void *stream, int *status))                                                                  \
    X(cuStreamSynchronize, 2000, (void *stream))                                                                                \
    X(cuMemAlloc, 3020, (uint64_t * ptr, size_t bytes))                                                                         \
    X(cuMemFree, 3020, (uint64_t ptr))                                                                                          \
    X(cuMemcpyHtoDAsync, 3020, (uint64_t dst, const void *src, size_t bytes, void *stream))                                     \
    X(cuMemcpyDtoHAsync, 3020, (void *dst, uint64_t src, size_t bytes, void *stream))                                           \
    X(cuMemsetD8Async, 3020, (uint64_t dst, unsigned char byte, size_t bytes, void *stream))                                    \
    X(cuModuleLoadDataEx, 2010, (void **module, const void *image, unsigned n, int *options, void **values))                    \
    X(cuModuleUnload, 2000, (void *module))                                                                                     \
    X(cuModuleGetFunction, 2000, (void **function, void *module, const char *name))                                             \
    X(cuFuncGetAttribute, 2020, (int *value, int attribute, void *function))                                                    \
    X(cuFuncSetAttribute, 9000, (void *function, int attribute, int value))                                                     \
    X(cuLaunchKernel, 4000,                                                                                                     \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, \
       unsigned smem, void *stream, void **params, void **extra))
#define GDN__CUDA_OPTIONAL(X)                                                                                                           \
    X(cuLibraryLoadData, 12000,                                                                                                         \
      (void **library, const void *code, int *jit_options, void **jit_values, unsigned n_jit, int *options, void **values, unsigned n)) \
    X(cuLibraryGetModule, 12000, (void **module, void *library))                                                                        \
    X(cuLibraryUnload, 12000, (void *library))                                                                                          \
    X(cuLaunchKernelEx, 11060, (const gdn__cu_launch *launch, void *function, void **params, void **extra))                             \
    X(cuFuncLoad, 12040, (void *function))                                                                                              \
    X(cuStreamGetCtx, 9020, (void *stream, void **ctx))

typedef struct gdn__cuda_api {
#define GDN__FIELD(name, version, params) gdn__cu_result(*name) params;
    GDN__CUDA_REQUIRED(GDN__FIELD)
    GDN__CUDA_OPTIONAL(GDN__FIELD)
#undef GDN__FIELD
    int version;   /* 13000: CUDA 13.0 */
    char *path;    /* the file that was loaded */
    void *library; /* stays mapped: the driver keeps threads */
} gdn__cuda_api;

/* Opens and initialises the driver. file: NULL is libcuda.so.1; tests name another. No context is made. A machine without a
 * device is not an error: *devices is 0. On failure nothing is kept. */
gdn_status gdn__cuda_api_open(const char *file, gdn__cuda_api *out, int *devices, gdn_text *err);
void gdn__cuda_api_close(gdn__cuda_api *api);
/* What device `ordinal` is; the name is written to name[128] and info->name points there. */
gdn_status gdn__cuda_device_read(const gdn__cuda_api *api, int ordinal, gdn_device *info, char name[128], int *device, gdn_text *err);

/* The status that a driver answer becomes. */
gdn_status gdn__cuda_status(gdn__cu_result r);
/* "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory" */
void gdn__cuda_explain(const gdn__cuda_api *api, const char *call, gdn__cu_result r, char *buf, size_t cap);

#endif
