/* plan_call.c - a launch's arguments: sizes, counts against their maxima, pointers that must be there, alignment. */
#include "plan_common.h"

gdn_status gdn__call_read(const gdn__op *op, const gdn_launch_args *args, gdn__call *out, gdn_text *err) {
    const char *name = gdn__op_name(op->op);
    *out = (gdn__call) { .op = op };
    if (!args) return gdn__fail(err, GDN_E_ARG, "%s: the launch arguments are NULL", name);
    if (args->struct_size < sizeof *args)
        return gdn__fail(err, GDN_E_ABI, "%s: struct_size of the launch arguments is %u, expected %zu", name, args->struct_size,
                         sizeof *args);
    if (args->flags) return gdn__fail(err, GDN_E_ARG, "%s: flags of the launch arguments is not 0", name);
    if ((args->n_ptr && !args->ptr) || (args->n_u32 && !args->u32)) return gdn__fail(err, GDN_E_ARG, "%s: an argument array is NULL", name);
    for (uint32_t i = 0; i < args->n_ptr; i++) {
        if (i < op->n_ptr)
            out->ptr[i] = args->ptr[i];
        else if (args->ptr[i])
            return gdn__fail(err, GDN_E_ABI, "%s: pointer %u is set, only %u are known", name, i, op->n_ptr);
    }
    for (uint32_t i = 0; i < args->n_u32; i++) {
        if (i < op->n_u32)
            out->u32[i] = args->u32[i];
        else if (args->u32[i])
            return gdn__fail(err, GDN_E_ABI, "%s: scalar %u is set, only %u are known", name, i, op->n_u32);
    }
    if (args->n_u32 < op->n_u32)
        return gdn__fail(err, GDN_E_ARG, "%s: %u scalars given, '%s' is missing", name, args->n_u32, op->u32[args->n_u32].name);
    return GDN_OK;
}

gdn_status gdn__call_required(const gdn__call *c, gdn_text *err) {
    for (uint32_t i = 0; i < c->op->n_ptr; i++)
        if (c->op->ptr[i].need == GDN_REQ && !c->ptr[i])
            return gdn__fail(err, GDN_E_ARG, "%s: pointer '%s' is NULL", gdn__op_name(c->op->op), c->op->ptr[i].name);
    return GDN_OK;
}

void *gdn__call_ptr(gdn__call *c, uint32_t index, uint32_t align) {
    const uint64_t p = c->ptr[index];
    if (p % align && !c->bad_name) {
        c->bad_name = c->op->ptr[index].name;
        c->bad_what = align == 2 ? "2-byte" : align == 4 ? "4-byte" : align == 8 ? "8-byte" : "16-byte";
    }
    return (void *)(uintptr_t)p;
}

gdn_status gdn__call_bound(const gdn__call *c, gdn_text *err) {
    if (!c->bad_name) return GDN_OK;
    return gdn__fail(err, GDN_E_ARG, "%s: pointer '%s' is not %s aligned", gdn__op_name(c->op->op), c->bad_name, c->bad_what);
}

gdn_status gdn__call_max(const gdn__call *c, uint32_t i, uint64_t max, const char *max_name, gdn_text *err) {
    if (c->u32[i] <= max) return GDN_OK;
    return gdn__fail(err, GDN_E_ARG, "%s: '%s' is %u, above the plan's %s, %llu", gdn__op_name(c->op->op), c->op->u32[i].name, c->u32[i],
                     max_name, (unsigned long long)max);
}
