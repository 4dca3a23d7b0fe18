/* cmd_cache.c - gdn cache: what compiled kernels are kept, whether they are whole, and throwing the rest away. */
#include "cli.h"
#include "gdn_cubins.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] = "usage: gdn cache list|verify|prune [options]\n\n"
                           "list    every kept module: state, arch, NVRTC, size, last use, options\n"
                           "verify  reads every one; exit code 1 when one is damaged, with its reason\n"
                           "prune   removes damaged, refused and left-over files, then what was used longest ago, down to the bound\n\n"
                           "  --max-mib N         bound for prune, 0 removes all (default: GDN_CACHE_MAX_MIB, else 256)\n";
static const char more_help[] = "\nThe folder is GDN_CACHE_DIR, else $XDG_CACHE_HOME/gdn, else ~/.cache/gdn. Removing it is always safe.\n";

typedef struct rows {
    json_t *list;
    uint64_t damaged, set_aside;
} rows;

static const char *state_of(const gdn_cache_row *r) {
    return r->set_aside ? "refused" : r->status == GDN_OK ? "whole" : r->status == GDN_ABSENT ? "partial" : "damaged";
}

static void collect(void *user, const gdn_cache_row *r) {
    rows *all = user;
    all->damaged += r->status == GDN_E_IO && !r->set_aside;
    all->set_aside += r->set_aside != 0;
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:o}", "state", state_of(r), "file", cli_text(r->file),
                            "module", cli_text(r->module), "arch", cli_text(r->arch), "nvrtc", cli_text(r->nvrtc), "options",
                            cli_text(r->options), "bytes", (json_int_t)r->bytes, "compiled", (json_int_t)r->compiled, "used",
                            (json_int_t)r->used, "compile_ms", r->ms, "reason", r->reason ? json_string(cli_text(r->reason)) : json_null());
    if (row) (void)json_array_append_new(all->list, row);
}

static const char *text_of(const json_t *row, const char *key) {
    const char *s = json_string_value(json_object_get(row, key));
    return s && *s ? s : "-";
}

static void print_rows(const json_t *list, bool only_bad) {
    size_t i;
    json_t *row;
    bool head = false;
    json_array_foreach(list, i, row) {
        const char *reason = json_string_value(json_object_get(row, "reason"));
        const bool bad = strcmp(text_of(row, "state"), "whole") != 0;
        if (only_bad) {
            if (bad) (void)printf("%s: %s\n", text_of(row, "state"), reason ? reason : text_of(row, "file"));
            continue;
        }
        if (!head) (void)printf("%-8s %-28s %-8s %-14s %9s  %-16s %s\n", "state", "module", "arch", "nvrtc", "bytes", "used", "options");
        head = true;
        char when[32] = "-";
        const time_t t = (time_t)json_integer_value(json_object_get(row, "used"));
        struct tm tm;
        if (localtime_r(&t, &tm)) (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
        (void)printf("%-8s %-28s %-8s %-14s %9lld  %-16s %s\n", text_of(row, "state"), text_of(row, "module"), text_of(row, "arch"),
                     text_of(row, "nvrtc"), (long long)json_integer_value(json_object_get(row, "bytes")), when,
                     text_of(row, bad ? "file" : "options"));
    }
}

static double mib(uint64_t bytes) {
    return (double)bytes / (1 << 20);
}

/* -1: bad usage. */
static int verb_of(const char *word) {
    static const char *const verbs[] = { "list", "verify", "prune" };
    for (int i = 0; i < 3; i++)
        if (!strcmp(word, verbs[i])) return i;
    return -1;
}

static int prune(const cli_common *c, uint64_t max_bytes) {
    char why[2048] = "", place[1024] = "";
    gdn_text err = { why, sizeof why, 0 }, folder = { place, sizeof place, 0 };
    gdn_cache_sums s = { .struct_size = (uint32_t)sizeof s };
    const gdn_status st = gdn_cache_prune(max_bytes, &s, &folder, &err);
    if (st != GDN_OK) {
        cli_error(c, "%s", *why ? why : gdn_status_text(st));
        return CLI_NO;
    }
    if (c->json)
        cli_print_json(json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "schema", 1, "version", gdn_version(), "command",
                                 "cache prune", "folder", cli_text(place), "entries", (json_int_t)s.entries, "bytes", (json_int_t)s.bytes,
                                 "removed", (json_int_t)s.removed, "removed_bytes", (json_int_t)s.removed_bytes));
    else
        (void)printf("%s: %llu removed (%.1f MiB), %llu left (%.1f MiB)\n", place, (unsigned long long)s.removed, mib(s.removed_bytes),
                     (unsigned long long)s.entries, mib(s.bytes));
    return CLI_OK;
}

static int list(const cli_common *c, bool verify) {
    char why[2048] = "", place[1024] = "";
    gdn_text err = { why, sizeof why, 0 }, folder = { place, sizeof place, 0 };
    gdn_cache_sums s = { .struct_size = (uint32_t)sizeof s };
    rows r = { .list = json_array() };
    const gdn_status st = gdn_cache_each(collect, &r, &s, &folder, &err);
    if (st != GDN_OK || !r.list) {
        cli_error(c, "%s", *why ? why : gdn_status_text(st));
        json_decref(r.list);
        return CLI_NO;
    }
    if (c->json) {
        cli_print_json(json_pack("{s:i, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:o}", "schema", 1, "version", gdn_version(),
                                 "command", verify ? "cache verify" : "cache list", "folder", cli_text(place), "writable", (int)s.writable,
                                 "bytes", (json_int_t)s.bytes, "max_bytes", (json_int_t)s.max_bytes, "damaged", (json_int_t)r.damaged,
                                 "refused", (json_int_t)r.set_aside, "entries_total", (json_int_t)s.entries, "entries", r.list));
    } else {
        print_rows(r.list, verify);
        (void)printf("%s: %llu modules, %.1f of %.0f MiB, %llu damaged, %llu refused by a driver%s\n", place, (unsigned long long)s.entries,
                     mib(s.bytes), mib(s.max_bytes), (unsigned long long)r.damaged, (unsigned long long)r.set_aside,
                     s.writable ? "" : "; cannot be written");
        json_decref(r.list);
    }
    return verify && r.damaged ? CLI_NO : CLI_OK;
}

/* As the cache reads GDN_CACHE_MAX_MIB. */
static bool is_bound(const char *text) {
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && !errno && v >= 1 && v <= 1 << 20;
}

/* No target is opened here: what is wrong with the environment is told all the same. */
static void tell_environment(const cli_common *c) {
    gdn_lever_set *set = NULL;
    (void)gdn_levers_read(&c->open, "cpu", &set, NULL);
    gdn_levers_free(set);
    const char *bound = getenv("GDN_CACHE_MAX_MIB");
    if (bound && *bound && !is_bound(bound))
        (void)fprintf(stderr, "gdn [warn] cache: GDN_CACHE_MAX_MIB=%.40s: expected a whole number from 1 to 1048576; 256 is used\n", bound);
}

int gdn_cmd_cache(int argc, char **argv) {
    static const struct option options[] = { CLI_COMMON_OPTIONS, { "max-mib", 1, 0, 'm' }, { 0, 0, 0, 0 } };
    cli_common c;
    uint64_t max_mib = 0;
    bool bounded = false;
    cli_common_init(&c, "cache");
    for (int val; (val = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (val == 'm') {
            if (!cli_u64(&c, "--max-mib", optarg, 0, 1 << 20, &max_mib)) return CLI_USAGE;
            bounded = true;
        } else if (!cli_common_option(&c, val, optarg)) {
            return CLI_USAGE;
        }
    }
    if (c.help) {
        (void)fputs(help, stdout);
        (void)fputs(CLI_OUTPUT_HELP, stdout);
        (void)fputs(more_help, stdout);
        return CLI_OK;
    }
    if (!cli_no_levers(&c, "a cache is of all targets and levers")) return CLI_USAGE;
    if (c.open.target) {
        cli_error(&c, "--target: not for this command: a cache is of all targets");
        return CLI_USAGE;
    }
    const int verb = optind < argc ? verb_of(argv[optind]) : -1;
    if (verb < 0) {
        cli_error(&c, "expected one of list, verify, prune%s%s%s", optind < argc ? ", not '" : "", optind < argc ? argv[optind] : "",
                  optind < argc ? "'" : "");
        return CLI_USAGE;
    }
    if (optind + 1 < argc) {
        cli_error(&c, "'%s': %s takes no argument but options", argv[optind + 1], argv[optind]);
        return CLI_USAGE;
    }
    if (bounded && verb != 2) {
        cli_error(&c, "--max-mib is for prune");
        return CLI_USAGE;
    }
    tell_environment(&c);
    return verb == 2 ? prune(&c, bounded ? max_mib << 20 : UINT64_MAX) : list(&c, verb == 1);
}
