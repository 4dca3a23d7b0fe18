/* cpu_query.c - the one exported symbol, and the const tables behind it. */
#include "cpu_plugin.h"

static const gdn_vtable table = {
    .struct_size = (uint32_t)sizeof(gdn_vtable),
    .abi_minor = GDN_ABI_MINOR,
    .init = cpu_init,
    .fini = cpu_fini,
    .plan = cpu_plan,
    .destroy = cpu_destroy,
    .launch = cpu_launch,
    .explain = cpu_explain,
    .route = cpu_route,
    .counters = cpu_counters,
    .extension = NULL,
    .route_on = cpu_route_on,
};

/* OpenMP keeps its threads for the life of the process: not GDN_F_UNLOADABLE. */
static const gdn_plugin identity = {
    .magic = GDN_ABI_MAGIC,
    .struct_size = (uint32_t)sizeof(gdn_plugin),
    .abi_major = GDN_ABI_MAJOR,
    .abi_minor = GDN_ABI_MINOR,
    .target = "cpu",
    .version = GDN_VERSION,
    .build_id = GDN_BUILD_ID,
    .sanitizer = GDN_SANITIZER_NAME,
    .archs = "",
    .flags = GDN_F_REFERENCE,
    .ops = &table,
};

const gdn_plugin *gdn_plugin_query(uint32_t host_major, uint32_t host_minor) {
    (void)host_minor; /* every minor of this major is served */
    return host_major == GDN_ABI_MAJOR ? &identity : NULL;
}
