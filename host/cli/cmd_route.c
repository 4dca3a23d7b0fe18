/* cmd_route.c - gdn route OP k=v ...: what would run for a shape, and which guard refused the other. Plans and launches nothing. */
#include "cli.h"
#include "nearest.h"
#include "shape_fields.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: gdn route OP [--sm-count N] [options] FIELD=VALUE ...\n"
    "       gdn route OP --fields [--json]\n\n"
    "What would run for an operation and shape: the entry, its geometry and workspace, the lever that decided and the guard\n"
    "that refused the other. FIELD is a field of the operation's shape (abi/gdn_op_*.h) or one of its counts; a field that is\n"
    "not given is 0, counts that are not given are the shape's maxima. Values are numbers or names (gate_form=linear,\n"
    "state_addr=pool, act_type=bf16, flags=checked+qk_l2norm).\n\n"
    "  gdn route prefill act_type=bf16 state_type=f32 nk=16 nv=32 k_dim=128 v_dim=128 gate_form=linear max_tokens=1024 max_batch=1\n"
    "  gdn route norm act_type=bf16 weight_type=bf16 dim=128 act=silu max_rows=64 eps=1e-6 rows=8\n\n"
    "  --sm-count N        as if the device had N multiprocessors (default: no device is asked; 132)\n"
    "  --fields            list the operation's fields and counts\n";

enum { MAX_COUNTS = 4, MAX_NAMES = 64 };

typedef struct request {
    const cli_shape *shape;
    cli_any_shape value;
    uint32_t u32[MAX_COUNTS];
    bool given[MAX_COUNTS];
    const char *seen[MAX_NAMES]; /* FIELD=VALUE so far */
    uint32_t n_seen;
} request;

static uint32_t find_op(const cli_common *c, const char *name) {
    static const char *const names[] = {
#define ROW(NAME, number, text) text,
        GDN_OP_MAP(ROW)
#undef ROW
    };
    const uint32_t op = gdn_op_by_name(name);
    if (op) return op;
    const char *near = gdn__nearest(name, names, sizeof names / sizeof *names);
    cli_error(c, "'%s' is no operation%s%s%s", name, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    return 0;
}

static bool word_value(const cli_word *words, const char *text, size_t n, uint64_t *out) {
    for (const cli_word *w = words; w && w->name; w++) {
        if (strlen(w->name) != n || memcmp(w->name, text, n) != 0) continue;
        *out = w->value;
        return true;
    }
    return false;
}

/* A number, a word, or words joined by '+'. */
static bool whole(const cli_common *c, const cli_field *f, const char *text, uint64_t *out) {
    uint64_t sum = 0, bit;
    const uint64_t most = f->kind == CLI_U64 ? UINT64_MAX : UINT32_MAX;
    if (!f->words || (*text >= '0' && *text <= '9')) return cli_u64(c, f->name, text, 0, most, out);
    for (const char *p = text; p;) {
        const size_t n = strcspn(p, "+");
        if (!word_value(f->words, p, n, &bit)) {
            char list[160] = "";
            for (const cli_word *w = f->words; w->name; w++) {
                const size_t used = strlen(list);
                (void)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", w->name);
            }
            cli_error(c, "%s=%s: expected a number or %s", f->name, text, list);
            return false;
        }
        sum |= bit;
        p = p[n] ? p + n + 1 : NULL;
    }
    *out = sum;
    return true;
}

static bool real(const cli_common *c, const char *name, const char *text, float *out) {
    char *end;
    errno = 0;
    const float v = strtof(text, &end);
    if (end == text || *end || errno == ERANGE || !isfinite(v)) {
        cli_error(c, "%s: '%s' is not a finite number", name, text);
        return false;
    }
    *out = v;
    return true;
}

static bool set_field(const cli_common *c, request *r, const cli_field *f, const char *text) {
    unsigned char *at = (unsigned char *)&r->value + f->offset;
    uint64_t u64 = 0;
    float f32 = 0;
    if (f->kind == CLI_F32) {
        if (!real(c, f->name, text, &f32)) return false;
        memcpy(at, &f32, sizeof f32);
        return true;
    }
    if (!whole(c, f, text, &u64)) return false;
    const uint32_t u32 = (uint32_t)u64; /* in range: checked by kind */
    memcpy(at, f->kind == CLI_U64 ? (const void *)&u64 : (const void *)&u32, f->kind == CLI_U64 ? sizeof u64 : sizeof u32);
    return true;
}

/* scale2 travels as the bits of an f32; people write the number. */
static bool set_count(const cli_common *c, request *r, uint32_t i, const char *text) {
    uint64_t v = 0;
    float f = 0;
    r->given[i] = true;
    if (!strcmp(r->shape->u32[i], "scale2")) {
        if (!real(c, "scale2", text, &f)) return false;
        memcpy(&r->u32[i], &f, sizeof f);
        return true;
    }
    if (!cli_u64(c, r->shape->u32[i], text, 0, UINT32_MAX, &v)) return false;
    r->u32[i] = (uint32_t)v;
    return true;
}

static bool set_pair(const cli_common *c, request *r, const char *pair) {
    const char *eq = strchr(pair, '='), *names[MAX_NAMES];
    const size_t n = eq ? (size_t)(eq - pair) : 0;
    char name[64];
    if (!n || n >= sizeof name) {
        cli_error(c, "'%s': expected FIELD=VALUE", pair);
        return false;
    }
    memcpy(name, pair, n);
    name[n] = '\0';
    for (uint32_t i = 0; i < r->n_seen; i++) {
        if (strncmp(r->seen[i], pair, n + 1) != 0) continue; /* the '=' too */
        cli_error(c, "'%s': %s was given before, as '%s'", pair, name, r->seen[i]);
        return false;
    }
    if (r->n_seen < MAX_NAMES) r->seen[r->n_seen++] = pair; /* no operation has as many */
    size_t k = 0;
    for (uint32_t i = 0; i < r->shape->n_fields; i++) {
        if (!strcmp(r->shape->fields[i].name, name)) return set_field(c, r, &r->shape->fields[i], eq + 1);
        if (k < MAX_NAMES) names[k++] = r->shape->fields[i].name;
    }
    for (uint32_t i = 0; i < r->shape->n_u32; i++) {
        if (!strcmp(r->shape->u32[i], name)) return set_count(c, r, i, eq + 1);
        if (k < MAX_NAMES) names[k++] = r->shape->u32[i];
    }
    const char *near = gdn__nearest(name, names, k);
    cli_error(c, "%s has no field '%s'%s%s%s", gdn_op_name(r->shape->op), name, near ? "; did you mean " : "", near ? near : "",
              near ? "?" : "");
    return false;
}

/* All counts that a launch must have, or none: half of them would be answered as zeros. scale2 decides nothing and may be left out. */
static bool counts_complete(const cli_common *c, const request *r, uint32_t *n) {
    const char *missing = NULL;
    *n = 0;
    for (uint32_t i = 0; i < r->shape->n_u32; i++) {
        if (r->given[i]) *n = r->shape->n_u32;
        if (!r->given[i] && r->shape->required >> i & 1 && strcmp(r->shape->u32[i], "scale2") != 0) missing = r->shape->u32[i];
    }
    if (*n && missing) cli_error(c, "%s is missing: give all counts but optional ones, or none for the maxima", missing);
    return !*n || !missing;
}

static const char *const kinds[] = { "u32", "u64", "f32" };

static json_t *fields_json(const cli_shape *s) {
    json_t *fields = json_array(), *counts = json_array();
    for (uint32_t i = 0; i < s->n_fields; i++) {
        json_t *words = json_object();
        for (const cli_word *w = s->fields[i].words; w && w->name; w++) (void)json_object_set_new(words, w->name, json_integer(w->value));
        json_t *row = json_pack("{s:s, s:s, s:o}", "name", s->fields[i].name, "type", kinds[s->fields[i].kind], "words", words);
        (void)json_array_append_new(fields, row); /* without memory a list stays short, which is seen below */
    }
    for (uint32_t i = 0; i < s->n_u32; i++) (void)json_array_append_new(counts, json_string(s->u32[i]));
    if (json_array_size(fields) == s->n_fields && json_array_size(counts) == s->n_u32)
        return json_pack("{s:i, s:s, s:s, s:s, s:o, s:o}", "schema", 1, "version", gdn_version(), "command", "route fields", "op",
                         gdn_op_name(s->op), "fields", fields, "counts", counts);
    json_decref(fields);
    json_decref(counts);
    return NULL;
}

static void list_fields(const cli_shape *s) {
    (void)printf("fields of %s:\n", gdn_op_name(s->op));
    for (uint32_t i = 0; i < s->n_fields; i++) {
        (void)printf("  %-18s %s", s->fields[i].name, kinds[s->fields[i].kind]);
        for (const cli_word *w = s->fields[i].words; w && w->name; w++)
            (void)printf("%s%s=%u", w == s->fields[i].words ? "  " : ", ", w->name, (unsigned)w->value);
        (void)putchar('\n');
    }
    (void)printf("counts:%s\n", s->n_u32 ? "" : " none");
    for (uint32_t i = 0; i < s->n_u32; i++) (void)printf("  %s%s\n", s->u32[i], s->required >> i & 1 ? "" : " (optional)");
}

static void print_route(const cli_common *c, uint32_t op, const char *target, gdn_status st, const gdn_route *r, const char *why) {
    static const char *const sources[] = { "built in", "conf", "env", "api" };
    const char *chosen = r->entry ? r->chosen ? "requested" : "fallback" : "nothing";
    const uint32_t declined = r->n_refused < GDN_ROUTE_REFUSALS ? r->n_refused : GDN_ROUTE_REFUSALS;
    if (c->json) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < declined; i++)
            (void)json_array_append_new(list, json_pack("{s:s?, s:s?}", "lever", r->refused[i].lever, "guard", r->refused[i].guard));
        cli_print_json(
            json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s?, s:s, s:s?, s:s?, s:s?, s:s?, s:[I,I,I], s:[I,I,I], s:I, s:I, s:i, s:s, s:o}",
                      "schema", 1, "version", gdn_version(), "command", "route", "op", gdn_op_name(op), "target", cli_text(target),
                      "status", gdn_status_name(st), "entry", r->entry, "runs", chosen, "guard", r->guard, "lever", r->lever,
                      "lever_source", r->lever ? sources[r->lever_source & 3] : NULL, "lever_place", cli_text(r->lever_where), "grid",
                      (json_int_t)r->grid[0], (json_int_t)r->grid[1], (json_int_t)r->grid[2], "block", (json_int_t)r->block[0],
                      (json_int_t)r->block[1], (json_int_t)r->block[2], "smem_bytes", (json_int_t)r->smem_bytes, "workspace_bytes",
                      (json_int_t)r->workspace_bytes, "split_tokens", (int)r->split_tokens, "reason", cli_text(why), "declined", list));
        return;
    }
    (void)printf("operation  %s\ntarget     %s\nstatus     %s (%s)\nentry      %s\nruns       %s\n", gdn_op_name(op), target,
                 gdn_status_name(st), gdn_status_text(st), r->entry ? r->entry : "-", chosen);
    (void)printf("guard      %s\n", r->guard ? r->guard : "-");
    for (uint32_t i = 0; i < declined && declined > 1; i++) /* in the order in which they were asked for */
        (void)printf("declined   %s: %s\n", r->refused[i].lever ? r->refused[i].lever : "-", r->refused[i].guard);
    if (r->lever) {
        (void)printf("lever      %s (%s, %s)\n", r->lever, sources[r->lever_source & 3], r->lever_where ? r->lever_where : "-");
    } else {
        (void)printf("lever      -\n");
    }
    (void)printf("grid       [%u,%u,%u]\nblock      [%u,%u,%u]\nsmem       %u bytes\nworkspace  %llu bytes\n", (unsigned)r->grid[0],
                 (unsigned)r->grid[1], (unsigned)r->grid[2], (unsigned)r->block[0], (unsigned)r->block[1], (unsigned)r->block[2],
                 (unsigned)r->smem_bytes, (unsigned long long)r->workspace_bytes);
    if (r->split_tokens) (void)printf("cuts       at multiples of %u tokens give the same bytes\n", (unsigned)r->split_tokens);
    if (*why) (void)printf("reason     %s\n", why);
}

static int ask(const cli_common *c, request *r, uint32_t sm_count, uint32_t n_u32) {
    char why[2048] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn_route route = { .struct_size = (uint32_t)sizeof route };
    gdn_info info = { .struct_size = (uint32_t)sizeof info };
    cli_common dry = *c; /* the answer needs no device */
    dry.open.flags |= GDN_OPEN_DRY;
    dry.open.settings = dry.settings;
    gdn *g = cli_open(&dry);
    if (!g) return CLI_NO;
    r->value.base.struct_size = r->shape->size;
    r->value.base.op = r->shape->op;
    const gdn_status st = gdn_route_for(g, sm_count, &r->value.base, n_u32, r->u32, &route, &err);
    int code = st == GDN_OK ? CLI_OK : CLI_NO;
    if (st < 0) {
        cli_error(c, "%s", *why ? why : gdn_status_text(st));
        if (st == GDN_E_ARG) code = CLI_USAGE; /* the shape came from the command line */
    } else {
        (void)gdn_describe(g, &info); /* cannot fail: both arguments are ours */
        print_route(c, r->shape->op, info.target, st, &route, why);
    }
    gdn_close(g);
    return code;
}

int gdn_cmd_route(int argc, char **argv) {
    enum { SM_COUNT = 1, FIELDS };
    static const struct option options[] = {
        CLI_COMMON_OPTIONS, { "sm-count", 1, 0, SM_COUNT }, { "fields", 0, 0, FIELDS }, { 0, 0, 0, 0 }
    };
    cli_common c;
    request r = { 0 };
    uint64_t sm_count = 0;
    bool fields = false;
    cli_common_init(&c, "route");
    for (int val; (val = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (val == SM_COUNT) {
            if (!cli_u64(&c, "--sm-count", optarg, 1, 65535, &sm_count)) return CLI_USAGE;
        } else if (val == FIELDS) {
            fields = true;
        } else if (!cli_common_option(&c, val, optarg)) {
            return CLI_USAGE;
        }
    }
    if (c.help) {
        (void)fputs(help, stdout);
        (void)fputs(CLI_COMMON_HELP "\nOperations:", stdout);
        for (uint32_t op = 1; gdn_op_name(op); op++) (void)printf(" %s", gdn_op_name(op));
        (void)putchar('\n');
        return CLI_OK;
    }
    if (optind == argc) {
        cli_error(&c, "which operation? (gdn route --help)");
        return CLI_USAGE;
    }
    const uint32_t op = find_op(&c, argv[optind]);
    r.shape = op ? cli_shape_of(op) : NULL;
    if (!r.shape) return CLI_USAGE;
    if (fields && optind + 1 < argc) {
        cli_error(&c, "'%s': --fields lists fields and takes none", argv[optind + 1]);
        return CLI_USAGE;
    }
    if (fields) {
        if (c.json)
            cli_print_json(fields_json(r.shape));
        else
            list_fields(r.shape);
        return CLI_OK;
    }
    for (int i = optind + 1; i < argc; i++)
        if (!set_pair(&c, &r, argv[i])) return CLI_USAGE;
    uint32_t n_u32 = 0;
    if (!counts_complete(&c, &r, &n_u32)) return CLI_USAGE;
    return ask(&c, &r, (uint32_t)sm_count, n_u32);
}
