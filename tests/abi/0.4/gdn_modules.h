/* gdn_modules.h - the add-on table "gdn.modules/1": what a target's kernels are compiled from, without a device.
 *
 * `gdn compile` uses it to fill a folder with compiled modules on a machine that has no GPU. */
#ifndef GDN_MODULES_H
#define GDN_MODULES_H

#include "gdn_backend.h"

#define GDN_MODULES_ID "gdn.modules/1"

typedef struct gdn_modules {
    uint32_t struct_size;
    uint32_t abi_minor;
    /* [any][cap] How many modules the target has for this architecture ("sm_90a"). Pure. */
    uint32_t (*count)(const char *arch);
    /* [any][cap] Module `index` of them, complete, arch included. Everything in *out lives as long as the plugin,
     * arch as long as the caller's string. GDN_E_ARG past the end. Pure. */
    gdn_status (*get)(const char *arch, uint32_t index, gdn_compile_job *out);
} gdn_modules;

#endif
