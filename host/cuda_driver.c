/* cuda_driver.c - finds libcuda.so.1, refuses stubs, resolves every entry at its pinned version, names what is wrong. */
#define _GNU_SOURCE /* dlinfo */
#include "cuda_driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* cuGetProcAddress as of CUDA 12.0. */
typedef gdn__cu_result (*get_proc_fn)(const char *symbol, void **out, int version, uint64_t flags, int *found);

static const struct entry {
    const char *name;
    int version;
    bool required;
    size_t at;
} entries[] = {
#define ROW(name, version, params) { #name, version, true, offsetof(gdn__cuda_api, name) },
    GDN__CUDA_REQUIRED(ROW)
#undef ROW
#define ROW(name, version, params) { #name, version, false, offsetof(gdn__cuda_api, name) },
        GDN__CUDA_OPTIONAL(ROW)
#undef ROW
};
enum { ENTRIES = sizeof entries / sizeof *entries };

gdn_status gdn__cuda_status(gdn__cu_result r) {
    switch (r) {
    case GDN__CU_OK: return GDN_OK;
    case GDN__CU_OUT_OF_MEMORY: return GDN_E_NOMEM;
    case GDN__CU_STUB_LIBRARY: return GDN_E_NODRIVER;
    case GDN__CU_CAPTURE_UNSUPPORTED:
    case GDN__CU_CAPTURE_IMPLICIT: return GDN_E_CAPTURE;
    case GDN__CU_INVALID_IMAGE:
    case GDN__CU_NO_BINARY_FOR_GPU:
    case GDN__CU_INVALID_PTX:
    case GDN__CU_UNSUPPORTED_PTX_VERSION:
    case GDN__CU_INVALID_SOURCE:
    case GDN__CU_NOT_FOUND: return GDN_E_LOAD;
    default: return GDN_E_DRIVER;
    }
}

void gdn__cuda_explain(const gdn__cuda_api *api, const char *call, gdn__cu_result r, char *buf, size_t cap) {
    const char *name = NULL, *text = NULL;
    if (api->cuGetErrorName(r, &name) != GDN__CU_OK || !name) name = "an error that the driver has no name for";
    if (api->cuGetErrorString(r, &text) != GDN__CU_OK || !text) text = "";
    (void)snprintf(buf, cap, "%s: %s (%d)%s%s%s", call, name, r, *text ? ": " : "", text,
                   gdn__cuda_status(r) == GDN_E_CAPTURE ? "; make plans, memory and copies before the capture" : "");
}

static char *path_of(void *library) {
    struct link_map *map = NULL;
    char real[PATH_MAX];
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name) return gdn__copy("a file that cannot be told");
    return gdn__copy(realpath(map->l_name, real) ? real : map->l_name);
}

/* A function pointer kept as an object pointer's bytes, which is how POSIX has dlsym used. */
static void put(gdn__cuda_api *api, size_t at, void *symbol) {
    memcpy((char *)api + at, &symbol, sizeof symbol);
}

static gdn_status refuse_stub(const gdn__cuda_api *api, gdn_text *err) {
    gdn__text_set(err, "%s is a stub for linking (error 34), not a driver: take its folder off the library path", api->path);
    return GDN_E_NODRIVER;
}

static gdn_status resolve(gdn__cuda_api *api, gdn_text *err) {
    void *symbol = dlsym(api->library, "cuGetProcAddress_v2");
    get_proc_fn get = NULL;
    _Static_assert(sizeof get == sizeof symbol, "function and object pointers have one size");
    memcpy(&get, &symbol, sizeof get);
    if (!get) {
        gdn__text_set(err, "%s has no cuGetProcAddress_v2: the driver is older than 12.0", api->path);
        return GDN_E_NODRIVER;
    }
    for (size_t i = 0; i < ENTRIES; i++) {
        void *fn = NULL;
        int found = 0;
        const gdn__cu_result r = get(entries[i].name, &fn, entries[i].version, GDN__CU_PROC_LEGACY_STREAM, &found);
        if (r == GDN__CU_STUB_LIBRARY) return refuse_stub(api, err); /* since 12 a stub answers so before anything is called */
        if ((r != GDN__CU_OK || !fn) && entries[i].required) {
            gdn__text_set(err, "%s does not offer %s as of version %d.%d (answer %d, %s): too old, or not a driver", api->path,
                          entries[i].name, entries[i].version / 1000, entries[i].version % 1000 / 10, r,
                          found == 2 ? "known only in another version" : "not found");
            return GDN_E_NODRIVER;
        }
        put(api, entries[i].at, r == GDN__CU_OK ? fn : NULL);
    }
    return GDN_OK;
}

static gdn_status start(gdn__cuda_api *api, int *devices, gdn_text *err) {
    char why[512];
    gdn__cu_result r = api->cuInit(0);
    const char *call = "cuInit";
    if (r == GDN__CU_NO_DEVICE) return GDN_OK;
    if (r == GDN__CU_STUB_LIBRARY) return refuse_stub(api, err);
    if (r == GDN__CU_OK) r = api->cuDriverGetVersion(&api->version), call = "cuDriverGetVersion";
    if (r == GDN__CU_OK) r = api->cuDeviceGetCount(devices), call = "cuDeviceGetCount";
    if (r == GDN__CU_OK) return GDN_OK;
    *devices = 0;
    gdn__cuda_explain(api, call, r, why, sizeof why);
    gdn__text_set(err, "%s: %s", api->path, why);
    return gdn__cuda_status(r);
}

gdn_status gdn__cuda_api_open(const char *file, gdn__cuda_api *out, int *devices, gdn_text *err) {
    *out = (gdn__cuda_api) { 0 };
    *devices = 0;
    (void)dlerror();
    out->library = dlopen(file ? file : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!out->library) {
        const char *why = dlerror();
        gdn__text_set(err, "no CUDA driver: %s", why ? why : "dlopen failed without a reason");
        return GDN_E_NODRIVER;
    }
    out->path = path_of(out->library);
    gdn_status st = out->path ? GDN_OK : GDN_E_NOMEM;
    if (st != GDN_OK) {
        gdn__text_set(err, "%s", gdn_status_text(st));
    } else if (strstr(out->path, "/stubs/")) {
        gdn__text_set(err, "%s is a stub for linking, not a driver: take its folder off the library path", out->path);
        st = GDN_E_NODRIVER;
    } else {
        st = resolve(out, err);
        if (st == GDN_OK) {
            st = start(out, devices, err);
            if (st != GDN_OK) out->library = NULL; /* it ran: it stays mapped */
        }
    }
    if (st != GDN_OK) {
        if (out->library) (void)dlclose(out->library); /* nothing of it ran */
        gdn__cuda_api_close(out);
    }
    return st;
}

void gdn__cuda_api_close(gdn__cuda_api *api) {
    free(api->path);
    *api = (gdn__cuda_api) { 0 };
}

gdn_status gdn__cuda_device_read(const gdn__cuda_api *api, int ordinal, gdn_device *info, char name[128], int *device, gdn_text *err) {
    int major = 0, minor = 0, sms = 0, smem = 0;
    size_t bytes = 0;
    const char *call = "cuDeviceGet";
    gdn__cu_result r = api->cuDeviceGet(device, ordinal);
    if (r == GDN__CU_OK) r = api->cuDeviceGetName(name, 127, *device), call = "cuDeviceGetName";
    if (r == GDN__CU_OK) r = api->cuDeviceGetAttribute(&major, GDN__CU_DEV_CC_MAJOR, *device), call = "cuDeviceGetAttribute";
    if (r == GDN__CU_OK) r = api->cuDeviceGetAttribute(&minor, GDN__CU_DEV_CC_MINOR, *device);
    if (r == GDN__CU_OK) r = api->cuDeviceGetAttribute(&sms, GDN__CU_DEV_SM_COUNT, *device);
    if (r == GDN__CU_OK) r = api->cuDeviceGetAttribute(&smem, GDN__CU_DEV_SMEM_OPTIN, *device);
    if (r == GDN__CU_OK) r = api->cuDeviceTotalMem(&bytes, *device), call = "cuDeviceTotalMem";
    if (r != GDN__CU_OK) {
        char why[512];
        gdn__cuda_explain(api, call, r, why, sizeof why);
        gdn__text_set(err, "device %d: %s", ordinal, why);
        return gdn__cuda_status(r);
    }
    name[127] = '\0';
    *info = (gdn_device) { .struct_size = (uint32_t)sizeof *info,
                           .ordinal = ordinal,
                           .name = name,
                           .cc_major = (uint32_t)major,
                           .cc_minor = (uint32_t)minor,
                           .sm_count = (uint32_t)sms,
                           .smem_optin = (uint32_t)smem,
                           .memory_bytes = bytes };
    return GDN_OK;
}
