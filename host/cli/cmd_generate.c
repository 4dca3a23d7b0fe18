/* cmd_generate.c - `gdn generate`: streams a checkpoint's text to stdout, what ran and how fast to stderr.
 *
 * The tokens of a byte-level checkpoint (vocab_size 256) are the bytes themselves; there is no tokenizer here. */
#include "check.h"
#include "engine.h"
#include "generate.h"
#include "generate_held.h"
#include "model_config.h"
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    cli_common common;
    const char *model, *prompt, *prompt_file, *held;
    uint64_t n, seed;
    double temperature, top_p;
    uint32_t dtype;
    bool speculate, woa, no_graph, w4a4;
} request;

static const char usage[] =
    "usage: gdn generate --model DIR (--prompt TEXT | --prompt-file FILE) [options]\n"
    "Writes the continuation of the prompt to stdout as it comes; routes and speed go to stderr.\n\n"
    "  --model DIR         a qwen3_next checkpoint: config.json and safetensors, all layers linear attention, bytes as tokens\n"
    "  --prompt TEXT       the prompt, byte for byte\n"
    "  --prompt-file FILE  the prompt from a file\n"
    "  --n N               tokens to write (default 256)\n"
    "  --dtype f32|bf16    type of activations (default f32 on target cpu, bf16 on a GPU, which has no other)\n"
    "  --temperature T     0 (default): the best token; else sample at this temperature\n"
    "  --top-p P           sample from the most probable tokens that hold this mass (default 1)\n"
    "  --seed S            of the sampling (default 0)\n"
    "  --w4a4              weights of the projections as NVFP4, products by FP4 codes of both sides; the perplexity of a held\n"
    "                      text before and after is told first\n"
    "  --held FILE         with --w4a4: the held text (default: a short one of the command's own)\n"
    "  --graph on|off      on a GPU: replay each kind of step as a CUDA graph (default on)\n"
    "  --speculate off|verify|woa  drafts by prompt lookup, four rows a verify (default off); woa sets the lever gdn_woa\n" CLI_COMMON_HELP;

/* ---- the command line ---- */

static bool real(const cli_common *c, const char *what, const char *text, double lo, double hi, double *out) {
    char *end = NULL;
    errno = 0;
    const double v = strtod(text, &end);
    if (end != text && !*end && !errno && isfinite(v) && v >= lo && v <= hi) {
        *out = v;
        return true;
    }
    cli_error(c, "%s '%s' is not a number from %g to %g", what, text, lo, hi);
    return false;
}

bool cli_dtype(const cli_common *c, const char *text, uint32_t *out) {
    *out = !strcmp(text, "f32") ? GDN_F32 : !strcmp(text, "bf16") ? GDN_BF16 : 0u;
    if (!*out) cli_error(c, "--dtype '%s' is not f32 or bf16", text);
    return *out != 0;
}

static bool speculation(request *r, const char *text) {
    r->woa = !strcmp(text, "woa");
    r->speculate = r->woa || !strcmp(text, "verify");
    if (r->speculate || !strcmp(text, "off")) return true;
    cli_error(&r->common, "--speculate '%s' is not off, verify or woa", text);
    return false;
}

static bool graph(request *r, const char *text) {
    r->no_graph = !strcmp(text, "off");
    if (r->no_graph || !strcmp(text, "on")) return true;
    cli_error(&r->common, "--graph '%s' is not on or off", text);
    return false;
}

static bool take(request *r, int val, const char *arg) {
    const cli_common *c = &r->common;
    switch (val) {
    case 'm': r->model = arg; return true;
    case 'p': r->prompt = arg; return true;
    case 'f': r->prompt_file = arg; return true;
    case 'n': return cli_u64(c, "--n", arg, 1, 1u << 24, &r->n);
    case 'd': return cli_dtype(c, arg, &r->dtype);
    case 't': return real(c, "--temperature", arg, 0, 100, &r->temperature);
    case 'P': return real(c, "--top-p", arg, 1e-9, 1, &r->top_p);
    case 's': return cli_u64(c, "--seed", arg, 0, UINT64_MAX, &r->seed);
    case 'S': return speculation(r, arg);
    case 'g': return graph(r, arg);
    case 'w': r->w4a4 = true; return true;
    case 'h': r->held = arg; return true;
    default: return cli_common_option(&r->common, val, arg);
    }
}

static bool parse(request *r, int argc, char **argv) {
    static const struct option options[] = {
        CLI_COMMON_OPTIONS,           { "model", 1, 0, 'm' }, { "prompt", 1, 0, 'p' },
        { "prompt-file", 1, 0, 'f' }, { "n", 1, 0, 'n' },     { "dtype", 1, 0, 'd' },
        { "temperature", 1, 0, 't' }, { "top-p", 1, 0, 'P' }, { "seed", 1, 0, 's' },
        { "speculate", 1, 0, 'S' },   { "graph", 1, 0, 'g' }, { "w4a4", 0, 0, 'w' },
        { "held", 1, 0, 'h' },        { 0, 0, 0, 0 },
    };
    int val = 0;
    optind = 1;
    while ((val = getopt_long(argc, argv, "", options, NULL)) != -1)
        if (!take(r, val, optarg)) return false;
    if (r->common.help) return true;
    if (optind < argc)
        cli_error(&r->common, "'%s' is not an option", argv[optind]);
    else if (!r->model)
        cli_error(&r->common, "--model is missing");
    else if (!r->prompt == !r->prompt_file)
        cli_error(&r->common, "give one of --prompt and --prompt-file");
    else if (!*r->model || (r->prompt_file && !*r->prompt_file))
        cli_error(&r->common, "%s is empty", *r->model ? "--prompt-file" : "--model");
    else if (r->prompt && !*r->prompt)
        cli_error(&r->common, "the prompt is empty");
    else if (r->held && !r->w4a4)
        cli_error(&r->common, "--held is the text of --w4a4, which is missing");
    else
        return true;
    return false;
}

/* Write-on-accept runs only when its lever is 1; asking for it here is asking for the lever. */
static bool ask_for_woa(cli_common *c) {
    for (uint32_t i = 0; i < c->open.n_settings; i++)
        if (!strcmp(c->settings[i].key, "gdn_woa")) return true;
    if (c->open.n_settings == sizeof c->settings / sizeof *c->settings) {
        cli_error(c, "too many --set");
        return false;
    }
    c->settings[c->open.n_settings++] = (gdn_setting) { "gdn_woa", "1" };
    c->open.settings = c->settings;
    return true;
}

/* ---- output ---- */

typedef struct sink {
    bool json;
    char *text;
    uint64_t n;
    bool failed;
} sink;

static bool write_token(void *user, uint32_t token) {
    sink *k = user;
    k->text[k->n++] = (char)token;
    if (k->json) return true;
    k->failed = putchar((int)token) == EOF || fflush(stdout) != 0;
    return !k->failed;
}

static void on_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    (void)user;
    cli_progress(what, done, total);
}

static double rate(uint64_t n, double seconds) {
    return seconds > 0 ? (double)n / seconds : 0;
}

static void print_route(void *user, const char *op, const gdn_route *route, uint64_t launches) {
    (void)user;
    fprintf(stderr, "  %-21s %-40s %llu launches", op, route->entry ? route->entry : "-", (unsigned long long)launches);
    for (uint32_t i = 0; i < route->n_refused && i < GDN_ROUTE_REFUSALS; i++)
        fprintf(stderr, "%s%s: %s", i ? "; " : ", asked for and declined: ", route->refused[i].lever ? route->refused[i].lever : "-",
                route->refused[i].guard);
    fprintf(stderr, "\n");
}

static void add_route(void *user, const char *op, const gdn_route *route, uint64_t launches) {
    json_array_append_new(user, json_pack("{s:s,s:s?,s:s?,s:I}", "op", op, "entry", cli_text(route->entry), "guard", cli_text(route->guard),
                                          "launches", (json_int_t)launches));
}

static const char *scheme(const request *r) {
    return r->woa ? "woa" : r->speculate ? "verify" : "off";
}

static const char *dtype_name(const gdn_engine *e) {
    return gdn_engine_dtype(e) == GDN_BF16 ? "bf16" : "f32";
}

static void print_graphs(const gdn_engine *e) {
    const char *why = NULL;
    const uint64_t n = gdn_engine_replays(e, &why);
    if (n || why)
        fprintf(stderr, "passes replayed as CUDA graphs: %llu%s%s\n", (unsigned long long)n, why ? "; a capture failed: " : "",
                why ? why : "");
}

static void print_stats(const request *r, const gdn_engine *e, const gdn_info *info, const gdn_generate_stats *st) {
    fprintf(stderr, "\ntarget %s (%s), dtype %s%s, dense by %s, %.1f MiB\n", info->target, info->path ? info->path : "", dtype_name(e),
            r->dtype ? "" : " (the target's default)", gdn_engine_dense(e), (double)gdn_engine_bytes(e) / 1048576);
    fprintf(stderr, "prompt: %llu tokens, %.3f s, %.0f tokens/s\n", (unsigned long long)st->prompt, st->prefill_seconds,
            rate(st->prompt, st->prefill_seconds));
    fprintf(stderr, "written: %llu tokens, %.3f s, %.1f tokens/s\n", (unsigned long long)st->generated, st->decode_seconds,
            rate(st->generated, st->decode_seconds));
    if (r->speculate)
        fprintf(stderr,
                "speculation (%s): %llu of %llu drafts accepted, %llu verifies (2 rows: %llu, 3: %llu, 4: %llu), %llu single steps\n",
                scheme(r), (unsigned long long)st->accepted, (unsigned long long)st->proposed, (unsigned long long)st->verifies,
                (unsigned long long)st->rows[2], (unsigned long long)st->rows[3], (unsigned long long)st->rows[4],
                (unsigned long long)st->steps);
    print_graphs(e);
    fprintf(stderr, "least gap between the two best logits: %.3g; below %.0e: %llu\nroutes that ran:\n", (double)st->least_gap,
            (double)GDN_NEAR_TIE, (unsigned long long)st->near_ties);
    if (gdn_engine_routes(e, print_route, NULL) != GDN_OK) cli_error(&r->common, "explain failed");
}

static void print_document(const request *r, const gdn_engine *e, const gdn_info *info, const gdn_generate_stats *st, const sink *k,
                           const held *h) {
    json_t *tokens = json_array(), *routes = json_array();
    for (uint64_t i = 0; i < k->n; i++) json_array_append_new(tokens, json_integer((unsigned char)k->text[i]));
    if (gdn_engine_routes(e, add_route, routes) != GDN_OK) cli_error(&r->common, "explain failed");
    json_t *doc = json_pack("{s:i,s:s,s:s,s:s,s:s,s:s,s:I,s:o,s:o}", "schema", 1, "command", "generate", "target", cli_text(info->target),
                            "dtype", dtype_name(e), "speculate", scheme(r), "dense", gdn_engine_dense(e), "graph_replays",
                            (json_int_t)gdn_engine_replays(e, NULL), "tokens", tokens, "routes", routes);
    json_t *text = json_stringn(k->text, (size_t)k->n);
    json_object_set_new(doc, "text", text ? text : json_null()); /* null: not UTF-8 */
    if (r->w4a4) json_object_set_new(doc, "w4a4", held_document(e, h));
    json_object_set_new(doc, "stats",
                        json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:f}", "prompt", (json_int_t)st->prompt, "generated",
                                  (json_int_t)st->generated, "steps", (json_int_t)st->steps, "verifies", (json_int_t)st->verifies,
                                  "proposed", (json_int_t)st->proposed, "accepted", (json_int_t)st->accepted, "near_ties",
                                  (json_int_t)st->near_ties, "prefill_seconds", st->prefill_seconds, "decode_seconds", st->decode_seconds,
                                  "least_gap", (double)st->least_gap));
    cli_print_json(doc);
}

/* ---- running ---- */

static int write_text(const request *r, gdn *g, gdn_engine *e, const uint32_t *prompt, uint64_t n_prompt, const held *h) {
    char buf[400] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    gdn_sampler sampler = { 0 };
    gdn_generate_stats st;
    sink k = { .json = r->common.json, .text = malloc((size_t)r->n) };
    gdn_status s = k.text ? gdn_describe(g, &info) : GDN_E_NOMEM;
    if (s == GDN_OK) s = gdn_sampler_init(&sampler, r->temperature, r->top_p, r->seed, gdn_engine_config(e)->vocab, &err);
    const gdn_generate_options opt = { r->n, &sampler, r->speculate ? GDN_ENGINE_MAX_ROWS - 1 : 0, 0, write_token, &k };
    if (s == GDN_OK) s = gdn_generate(e, prompt, n_prompt, &opt, &st, &err);
    int rc = CLI_NO;
    if (s != GDN_OK) {
        cli_error(&r->common, "%s: %s", r->model, buf[0] ? buf : gdn_status_text(s));
    } else if (!k.failed) { /* main says what is wrong with stdout */
        if (r->common.json)
            print_document(r, e, &info, &st, &k, h);
        else
            print_stats(r, e, &info, &st);
        rc = CLI_OK;
    }
    gdn_sampler_free(&sampler);
    free(k.text);
    return rc;
}

static gdn_engine *load(const request *r, gdn *g, bool w4a4) {
    char buf[600] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_engine *e = NULL;
    const gdn_engine_options opt = {
        .target = g, .dtype = r->dtype, .woa = r->woa, .w4a4 = w4a4, .no_graph = r->no_graph, .progress = on_progress
    };
    if (gdn_engine_load(r->model, &opt, &e, &err) != GDN_OK) {
        cli_error(&r->common, "%s", buf);
    } else if (gdn_engine_config(e)->vocab != 256) {
        cli_error(&r->common, "%s: vocab_size is %u; without a tokenizer only byte-level checkpoints (256) can be written as text",
                  r->model, gdn_engine_config(e)->vocab);
        gdn_engine_free(e);
        e = NULL;
    }
    return e;
}

/* The perplexity with the checkpoint's own weights, by an engine that is gone before the other is loaded. */
static bool before(const request *r, gdn *g, held *h) {
    gdn_engine *e = load(r, g, false);
    const bool ok = e && held_measure(&r->common, e, h, &h->before);
    gdn_engine_free(e);
    return ok;
}

static int with_engine(const request *r, gdn *g, const uint32_t *prompt, uint64_t n_prompt) {
    held h = { 0 };
    int rc = r->w4a4 ? cli_read_tokens(&r->common, r->held, gdn__held_text, &h.tokens, &h.n) : CLI_OK;
    gdn_engine *e = rc == CLI_OK && (!r->w4a4 || before(r, g, &h)) ? load(r, g, r->w4a4) : NULL;
    rc = e && (!r->w4a4 || held_measure(&r->common, e, &h, &h.after)) ? CLI_OK : CLI_NO;
    if (rc == CLI_OK && r->w4a4 && !r->common.json) held_print(e, &h);
    if (rc == CLI_OK && r->w4a4 && !held_projections(e)) {
        cli_error(&r->common, "--w4a4: no projection took it, so nothing was written");
        rc = CLI_NO;
    }
    if (rc == CLI_OK) rc = write_text(r, g, e, prompt, n_prompt, &h);
    gdn_engine_free(e);
    free(h.tokens);
    return rc;
}

int gdn_cmd_generate(int argc, char **argv) {
    request r = { .n = 256, .top_p = 1 };
    cli_common_init(&r.common, "generate");
    if (!parse(&r, argc, argv)) return CLI_USAGE;
    if (r.common.help) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    if (r.woa && !ask_for_woa(&r.common)) return CLI_USAGE;
    uint32_t *prompt = NULL;
    uint64_t n_prompt = 0;
    int rc = cli_read_tokens(&r.common, r.prompt_file, r.prompt, &prompt, &n_prompt);
    gdn *g = rc == CLI_OK ? cli_open(&r.common) : NULL;
    if (rc == CLI_OK) rc = g ? with_engine(&r, g, prompt, n_prompt) : CLI_NO;
    gdn_close(g);
    free(prompt);
    return rc;
}
