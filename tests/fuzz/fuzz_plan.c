/* fuzz_plan.c - any bytes as a shape and a launch of target hopper: refused with one line, or a route whose sizes fit a device, and a
 * launch whose counts and pointers are judged without one. Nothing is planned or started. The bytes: operation, levers, then the shape
 * behind its head, four counts, sixteen pointers. */
#include "call_regions.h"
#include "gpu_plugin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;
static void take(input *in, void *to, size_t n) {
    const size_t have = n < in->left ? n : in->left;
    memset(to, 0, n);
    if (have) memcpy(to, in->at, have);
    in->at += have;
    in->left -= have;
}

static void no_log(void *user, uint32_t severity, const char *area, const char *msg) {
    (void)user, (void)severity, (void)area, (void)msg;
}
static uint32_t no_once(void *user, uint32_t slot) {
    (void)user, (void)slot;
    return 0;
}
/* Bit i of the input: lever i is on. */
static gdn_status lever(void *user, const char *key, gdn_lever *out) {
    static const char *const keys[] = { "gdn_prefill_tc",  "gdn_prefill_fast", "gdn_no_fwd_o_mma8",  "ssm_ba_gates_hopper",
                                        "ssm_ba_gates_tc", "gdn_woa",          "gdn_prefill_fast_wn" };
    const uint8_t bits = *(const uint8_t *)user;
    for (uint32_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(keys[i], key) != 0 || !(bits >> i & 1)) continue;
        out->value = strcmp(key, "gdn_woa") == 0 ? "1" : "true";
        out->where = "input";
        out->source = GDN_FROM_API;
        return GDN_OK;
    }
    return GDN_ABSENT;
}

#define must(ok)                                     \
    do {                                             \
        if (!(ok)) {                                 \
            (void)fprintf(stderr, "not: %s\n", #ok); \
            abort();                                 \
        }                                            \
    } while (0)

static void check_route(const gdn_route *r, gdn_status st) {
    must(r->n_refused <= GDN_ROUTE_REFUSALS);
    for (uint32_t i = 0; i < r->n_refused; i++) must(r->refused[i].guard != NULL);
    if (st != GDN_OK) return;
    must(r->entry != NULL);
    must(r->workspace_bytes <= (1ull << 62) + (1ull << 40));
    must(r->smem_bytes <= 227 * 1024);
    must(r->grid[0] <= INT32_MAX && r->grid[1] <= 65535 && r->grid[2] <= 65535);
    must((uint64_t)r->block[0] * r->block[1] * r->block[2] <= 1024 || r->grid[0] == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = { data, size };
    uint8_t head[2];
    gdn__shape raw, s;
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    char text[300] = "";
    gdn_text err = { text, sizeof text, 0 };
    take(&in, head, 2);
    const gdn__op *op = gdn__op_find(1u + head[0] % (GDN_OP_COUNT_ - 1));
    memset(&raw, 0, sizeof raw);
    take(&in, (uint8_t *)&raw + 8, op->shape_size - 8); /* flags and all that follows */
    raw.base.struct_size = op->shape_size;
    raw.base.op = op->op;
    gdn__call c = { .op = op };
    take(&in, c.u32, sizeof c.u32);
    take(&in, c.ptr, sizeof c.ptr);
    const gdn_host host = {
        .struct_size = (uint32_t)sizeof host, .abi_minor = GDN_ABI_MINOR, .user = &head[1], .log = no_log, .lever = lever, .once = no_once
    };
    gdn_status st = gpu_route(&host, 132, &raw.base, 0, NULL, &route, &err);
    must(st == GDN_OK || st == GDN_ABSENT || route.guard || (text[0] && !strchr(text, '\n')));
    if (st < 0) return 0;
    check_route(&route, st);
    must(gdn__shape_read(&raw.base, &s, NULL) == GDN_OK || st == GDN_REFUSED);
    if (gdn__call_counts(&s, &c, &err) != GDN_OK || gdn__call_is_empty(&s, &c)) return 0;
    st = gpu_route(&host, 132, &raw.base, op->n_u32, c.u32, &route, &err);
    must(st >= 0);
    check_route(&route, st);
    text[0] = '\0';
    must(gdn__call_apart(&s, &c, route.workspace_bytes, &err) == GDN_OK || (text[0] && !strchr(text, '\n')));
    return 0;
}
