/* check_golden.c - `gdn check --golden FILE`: a recorded layer through a target, stage by stage and end to end. */
#include "check.h"
#include "golden_lab.h"
#include <stdlib.h>

/* Prefill, then every decode step; `each` call runs the stages or the chain. */
static void run_calls(golden_lab *b, golden_chain *chain) {
    const golden *l = b->l;
    char names[2][24] = { "prefill", "" };
    for (uint32_t i = 0; !b->failed && i <= l->steps; i++) {
        const uint32_t tokens = i ? 1 : l->tokens;
        if (i) snprintf(names[i % 2], sizeof names[0], "decode%u", i - 1);
        const golden_call call = { names[i % 2], i ? names[(i + 1) % 2] : NULL, tokens, l->batch * tokens };
        if (chain)
            golden_run_chain(b, &call, chain);
        else
            golden_run_stages(b, &call);
    }
}

/* The chain's states live longer than a call. */
static void run_chain(golden_lab *b) {
    const golden *l = b->l;
    const uint64_t state = (uint64_t)l->batch * l->nv * l->dim * l->dim * sizeof(float);
    const uint64_t conv = (uint64_t)l->batch * l->channels * (GOLDEN_CONV_WIDTH - 1) * gdn__type_bytes(b->act);
    char buf[200] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    golden_chain chain = { 0 };
    if (b->failed) return;
    gdn_status s = gdn__arena_zeros(&b->weights, state, &chain.state, &err);
    if (s == GDN_OK) s = gdn__arena_zeros(&b->weights, conv, &chain.conv_state, &err);
    if (s == GDN_OK) {
        run_calls(b, &chain);
        golden_judge_chain(b, &chain);
    } else {
        cli_error(b->c, "%s", buf);
        b->failed = true;
    }
}

static void report(const golden_lab *b, const char *target) {
    const golden *l = b->l;
    const char *dtype = b->act == GDN_BF16 ? "bf16" : "f32";
    if (b->c->json) {
        cli_print_json(json_pack("{s:i,s:s,s:s,s:s,s:s,s:b,s:O,s:O}", "schema", 1, "command", "check", "file", cli_text(l->file), "target",
                                 cli_text(target), "dtype", dtype, "ok", b->over == 0, "results", b->results, "routes", b->routes));
        return;
    }
    size_t i;
    json_t *r;
    json_array_foreach(b->routes, i, r) {
        printf("%s %s\n", json_string_value(json_object_get(r, "op")), json_string_value(json_object_get(r, "entry")));
    }
    printf("%s: target %s, dtype %s, %zu comparisons, %u above their bound: %s\n", l->file, target, dtype, json_array_size(b->results),
           b->over, b->over ? "NOT ok" : "ok");
}

static int run(const cli_common *c, const golden *l, gdn *g, uint32_t dtype) {
    golden_lab b;
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    int rc = CLI_NO;
    if (gdn_describe(g, &info) != GDN_OK) {
        cli_error(c, "the target does not describe itself");
        return CLI_NO;
    }
    if (lab_open(&b, c, l, g, dtype)) {
        run_calls(&b, NULL);
        run_chain(&b);
        if (!b.failed) {
            report(&b, info.target);
            rc = b.over ? CLI_NO : CLI_OK;
        }
    }
    lab_close(&b);
    return rc;
}

int cli_check_golden(const cli_common *c, const char *file, uint32_t dtype) {
    golden l;
    int rc = CLI_NO;
    if (!*file) return cli_error(c, "--golden is empty"), CLI_USAGE;
    if (!golden_open(c, file, &l)) return CLI_NO;
    gdn *g = cli_open(c);
    if (g) rc = run(c, &l, g, dtype ? dtype : gdn__dense_act(g));
    gdn_close(g);
    golden_close(&l);
    return rc;
}
