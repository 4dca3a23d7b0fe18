/* plan_levers.c - the levers that plugins look at, read from the host once. */
#include "plan_common.h"
#include <string.h>

static bool get(const gdn_host *host, const char *key, gdn_lever *out) {
    memset(out, 0, sizeof *out);
    out->struct_size = (uint32_t)sizeof *out;
    return host && host->lever && host->lever(host->user, key, out) == GDN_OK && out->value;
}

static bool is_on(const gdn_host *host, const char *key, uint32_t *source, const char **where) {
    gdn_lever v;
    if (!get(host, key, &v)) return false;
    if (source) *source = v.source;
    if (where) *where = v.where;
    return strcmp(v.value, "true") == 0 || strcmp(v.value, "1") == 0;
}

/* The value of an exact-string lever; NULL: unset. */
static const char *exact(const gdn_host *host, const char *key, uint32_t *source, const char **where) {
    gdn_lever v;
    if (!get(host, key, &v)) return NULL;
    *source = v.source;
    *where = v.where;
    return v.value;
}

void gdn__levers_read(const gdn_host *host, gdn__levers *out) {
    gdn_lever v;
    memset(out, 0, sizeof *out);
    out->cpu_isa = UINT32_MAX;
    out->launch_early = is_on(host, "gdn_launch_early", NULL, NULL);
    out->prefill_tc = is_on(host, "gdn_prefill_tc", &out->tc_source, &out->tc_where);
    out->prefill_fast = is_on(host, "gdn_prefill_fast", &out->fast_source, &out->fast_where);
    out->prefill_wn = is_on(host, "gdn_prefill_fast_wn", &out->wn_source, &out->wn_where);
    out->no_prefill_tc = is_on(host, "gdn_no_prefill_tc", &out->no_tc_source, &out->no_tc_where);
    out->no_mma8 = is_on(host, "gdn_no_fwd_o_mma8", NULL, NULL);
    out->pipe = exact(host, "gdn_pipe", &out->pipe_source, &out->pipe_where);
    out->vtile = exact(host, "gdn_vtile", &out->vtile_source, &out->vtile_where);
    out->ba_hopper = is_on(host, "ssm_ba_gates_hopper", &out->ba_source, &out->ba_where);
    out->ba_tc = is_on(host, "ssm_ba_gates_tc", &out->ba_tc_source, &out->ba_tc_where);
    out->woa = is_on(host, "gdn_woa", &out->woa_source, &out->woa_where);
    out->mx_nt = 4; /* a host that does not know the levers: the built-in values */
    out->mx_ps = true;
    if (get(host, "w4a4_mx_nt", &v)) {
        out->mx_nt = strcmp(v.value, "1") == 0 ? 1 : 4;
        out->mx_nt_source = v.source;
        out->mx_nt_where = v.where;
    }
    if (get(host, "w4a4_mx_ps", &v)) {
        out->mx_ps = strcmp(v.value, "0") != 0;
        out->mx_ps_source = v.source;
        out->mx_ps_where = v.where;
    }
    if (get(host, "cpu_isa", &v)) {
        if (strcmp(v.value, "base") == 0) out->cpu_isa = 0;
        if (strcmp(v.value, "avx2") == 0) out->cpu_isa = 1;
        if (strcmp(v.value, "avx512") == 0) out->cpu_isa = 2;
    }
}
