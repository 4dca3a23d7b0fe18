/* cmd_targets.c - gdn targets: which plugins load, their ABI, and why the others do not. */
#include "cli.h"

#include <getopt.h>
#include <string.h>

static const char help[] =
    "usage: gdn targets [options]\n\n"
    "One row for each target that this release knows and for each plugin file in the search folders: is it usable, its\n"
    "ABI, release, build, architectures and file; then a line with the reason for each that is not.\n"
    "Usable: it loads, its settings are what opening it would take, and a device of its kind is there.\n"
    "With --target the exit code is 1 when that one is not usable, without it when none is; 2 when --set, --conf or --target is\n"
    "what is wrong.\n\n"
    "Search folders, strongest first: GDN_PLUGIN_PATH (replaces the rest), GDN_ADD_PLUGIN_PATH, the install folder, beside\n"
    "libgdn, beside the program. The working folder is never searched.\n\n";

typedef struct rows {
    json_t *list;     /* every row */
    const char *want; /* NULL or auto: any */
    bool any, named, last_ok, fault;
    const cli_common *c;
} rows;

static json_t *text_or_null(const char *s) {
    return s ? json_string(cli_text(s)) : json_null();
}

static void collect(void *user, const gdn_target_info *info) {
    rows *r = user;
    const bool usable = info->status == GDN_OK;
    char abi[32] = "-", reason[CLI_TEXT] = "";
    if (info->reason) r->fault |= cli_fault(r->c, info->reason, reason, sizeof reason);
    if (info->path) (void)snprintf(abi, sizeof abi, "%u.%u", (unsigned)info->abi_major, (unsigned)info->abi_minor);
    r->any |= usable;
    r->last_ok = usable;
    if (r->want && !strcmp(info->target, r->want)) r->named = usable;
    json_t *row = json_pack("{s:s, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:s}", "target", cli_text(info->target), "usable", usable, "status",
                            gdn_status_name(info->status), "reason", text_or_null(info->reason ? reason : NULL), "path",
                            text_or_null(info->path), "version", text_or_null(info->version), "build_id", text_or_null(info->build_id),
                            "archs", text_or_null(info->archs), "abi", abi);
    if (json_array_append_new(r->list, row) != 0) r->any = false;
}

static const char *cell(const json_t *row, const char *key) {
    const char *s = json_string_value(json_object_get(row, key));
    return s && *s ? s : "-";
}

static void print_table(const json_t *list) {
    size_t i;
    json_t *row;
    (void)printf("%-12s %-10s %-4s %-9s %-17s %-8s %s\n", "target", "state", "ABI", "version", "build", "archs", "file");
    json_array_foreach(list, i, row) {
        (void)printf("%-12s %-10s %-4s %-9s %-17s %-8s %s\n", cell(row, "target"),
                     json_is_true(json_object_get(row, "usable")) ? "usable" : "not usable", cell(row, "abi"), cell(row, "version"),
                     cell(row, "build_id"), cell(row, "archs"), cell(row, "path"));
    }
    json_array_foreach(list, i, row) {
        if (!json_is_true(json_object_get(row, "usable"))) (void)printf("\n%s: %s\n", cell(row, "target"), cell(row, "reason"));
    }
}

int gdn_cmd_targets(int argc, char **argv) {
    static const struct option options[] = { CLI_COMMON_OPTIONS, { 0, 0, 0, 0 } };
    cli_common c;
    cli_common_init(&c, "targets");
    for (int val; (val = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (!cli_common_option(&c, val, optarg)) return CLI_USAGE;
    if (c.help) {
        (void)fputs(help, stdout);
        (void)fputs(CLI_COMMON_HELP, stdout);
        return CLI_OK;
    }
    if (optind != argc) {
        cli_error(&c, "'%s': takes no argument but options", argv[optind]);
        return CLI_USAGE;
    }
    char why[CLI_TEXT] = "";
    gdn_text err = { why, sizeof why, 0 };
    rows r = { .list = json_array(), .want = c.open.target, .c = &c };
    if (r.want && !strcmp(r.want, "auto")) r.want = NULL;
    const gdn_status st = gdn_targets(&c.open, collect, &r, &err);
    if (st != GDN_OK) {
        cli_failed(&c, st, why);
        json_decref(r.list);
        return CLI_NO;
    }
    const bool yes = !r.want ? r.any : strchr(r.want, '/') ? r.last_ok : r.named; /* a path is told last */
    if (c.json) {
        cli_print_json(json_pack("{s:i, s:s, s:s, s:o}", "schema", 1, "version", gdn_version(), "command", "targets", "targets", r.list));
    } else {
        print_table(r.list);
        json_decref(r.list);
    }
    return yes ? CLI_OK : r.fault ? CLI_USAGE : CLI_NO;
}
