/* gpu_query.c - the one exported symbol of a GPU target, the const tables behind it, and the module list. */
#include "gpu_plugin.h"
#include <string.h>

static uint32_t modules_count(const char *arch) {
    gdn_compile_job job;
    uint32_t n = 0;
    while (arch && gpu_job_at(arch, n, &job)) n++;
    return n;
}

static gdn_status modules_get(const char *arch, uint32_t index, gdn_compile_job *out) {
    gdn_compile_job job;
    if (!arch || !out || out->struct_size < GDN_THROUGH(gdn_compile_job, n_options) || !gpu_job_at(arch, index, &job)) return GDN_E_ARG;
    *out = job;
    return GDN_OK;
}

static const gdn_modules module_list = {
    .struct_size = (uint32_t)sizeof(gdn_modules), .abi_minor = GDN_ABI_MINOR, .count = modules_count, .get = modules_get
};

static const void *extension(const char *id) {
    return id && strcmp(id, GDN_MODULES_ID) == 0 ? &module_list : NULL;
}

static const gdn_vtable table = {
    .struct_size = (uint32_t)sizeof(gdn_vtable),
    .abi_minor = GDN_ABI_MINOR,
    .init = gpu_init,
    .fini = gpu_fini,
    .plan = gpu_plan,
    .destroy = gpu_destroy,
    .launch = gpu_launch,
    .explain = gpu_explain,
    .route = gpu_route,
    .counters = gpu_counters,
    .extension = extension,
    .route_on = gpu_route_on,
};

static const gdn_plugin identity = {
    .magic = GDN_ABI_MAGIC,
    .struct_size = (uint32_t)sizeof(gdn_plugin),
    .abi_major = GDN_ABI_MAJOR,
    .abi_minor = GDN_ABI_MINOR,
    .target = GPU_TARGET_NAME,
    .version = GDN_VERSION,
    .build_id = GDN_BUILD_ID,
    .sanitizer = GDN_SANITIZER_NAME,
    .archs = GPU_TARGET_ARCH,
    .flags = GDN_F_UNLOADABLE | GPU_TARGET_FLAGS,
    .ops = &table,
};

const gdn_plugin *gdn_plugin_query(uint32_t host_major, uint32_t host_minor) {
    (void)host_minor; /* every minor of this major is served */
    return host_major == GDN_ABI_MAJOR ? &identity : NULL;
}
