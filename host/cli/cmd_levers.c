/* cmd_levers.c - gdn levers: every lever with its value, source and place, and what that value replaced. */
#include "cli.h"

#include <getopt.h>
#include <string.h>

static const char help[] =
    "usage: gdn levers [--meaning] [options]\n\n"
    "Every lever of a target: key, value, source and place; below it each value that was overridden.\n"
    "Weakest first: built in, <target>.ini, /etc/gdn/<target>.ini, the file of GDN_CONF or --conf, environment, --set.\n"
    "A switch named ..._NO_... outranks files and environment when it is set at all, even to 0; --set outranks it.\n\n"
    "  --meaning           also what each lever does, its environment variable, grammar and built-in value\n";

static const char *const sources[] = { "built in", "conf", "env", "api" };

/* What libgdn says at level debug about overridden values ("key: ..."); the other lines go where they always go. */
typedef struct capture {
    const cli_common *c;
    uint32_t level;
    json_t *overridden; /* key -> array of texts */
} capture;

static void hear(void *user, uint32_t severity, const char *area, const char *msg) {
    const capture *cap = user;
    const char *colon = strstr(msg, ": ");
    if (severity != GDN_LOG_DEBUG || strcmp(area, "levers") != 0 || !colon) {
        if (severity <= cap->level || severity == GDN_LOG_HOST_BUG) cap->c->open.log(cap->c->open.log_user, severity, area, msg);
        return;
    }
    char key[64];
    (void)snprintf(key, sizeof key, "%.*s", (int)(colon - msg), msg);
    const char *end = strstr(colon, " is overridden by ");
    const size_t length = end ? (size_t)(end - colon - 2) : strlen(colon + 2);
    json_t *list = json_object_get(cap->overridden, key);
    if (!list && json_object_set_new(cap->overridden, key, json_array()) == 0) list = json_object_get(cap->overridden, key);
    char was[1024];
    (void)snprintf(was, sizeof was, "%.*s", (int)(length < sizeof was ? length : sizeof was - 1), colon + 2);
    (void)json_array_append_new(list, json_string(cli_text(was))); /* a NULL list is refused: the line is lost, no more */
}

/* Exact strings may be empty or begin with a blank: then in quotes. */
static const char *shown(const char *value, char *buf, size_t size) {
    if (!value) return "(unset)";
    const bool plain = *value && strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-+/") == strlen(value);
    if (plain) return value;
    (void)snprintf(buf, size, "\"%s\"", cli_text(value));
    return buf;
}

static void print_table(const gdn_lever_set *set, const json_t *overridden, bool meaning) {
    gdn_lever_info info = { .struct_size = (uint32_t)sizeof info };
    char buf[256];
    (void)printf("%-20s %-10s %-9s %s\n", "key", "value", "source", "place");
    for (uint32_t i = 0; gdn_levers_at(set, i, &info) == GDN_OK; i++) {
        size_t k;
        json_t *line;
        (void)printf("%-20s %-10s %-9s %s\n", info.key, shown(info.value, buf, sizeof buf), sources[info.source & 3], info.where);
        json_array_foreach(json_object_get(overridden, info.key), k, line) {
            (void)printf("    was %s\n", json_string_value(line));
        }
        if (meaning) {
            (void)printf("    %s\n", info.meaning);
            (void)printf("    %s, %s; built in: %s\n", info.env, info.grammar, shown(info.builtin, buf, sizeof buf));
        }
    }
}

static json_t *as_json(const gdn_lever_set *set, const json_t *overridden) {
    json_t *list = json_array();
    gdn_lever_info info = { .struct_size = (uint32_t)sizeof info };
    for (uint32_t i = 0; gdn_levers_at(set, i, &info) == GDN_OK; i++) {
        json_t *was = json_object_get(overridden, info.key);
        json_t *row = json_pack("{s:s, s:s?, s:s, s:s, s:s, s:s, s:s, s:s?, s:o}", "key", info.key, "value", cli_text(info.value), "source",
                                sources[info.source & 3], "place", cli_text(info.where), "env", info.env, "grammar", info.grammar,
                                "meaning", info.meaning, "builtin", info.builtin, "overridden", was ? json_incref(was) : json_array());
        if (json_array_append_new(list, row) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return json_pack("{s:i, s:s, s:s, s:o}", "schema", 1, "version", gdn_version(), "command", "levers", "levers", list);
}

int gdn_cmd_levers(int argc, char **argv) {
    enum { MEANING = 1 };
    static const struct option options[] = { CLI_COMMON_OPTIONS, { "meaning", 0, 0, MEANING }, { 0, 0, 0, 0 } };
    cli_common c;
    bool meaning = false;
    cli_common_init(&c, "levers");
    for (int val; (val = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (val == MEANING) {
            meaning = true;
        } else if (!cli_common_option(&c, val, optarg)) {
            return CLI_USAGE;
        }
    }
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
    gdn_lever_set *set = NULL;
    capture cap = { &c, c.open.log_level, json_object() };
    gdn_options open = c.open;
    open.log = hear;
    open.log_user = &cap;
    open.log_level = GDN_LOG_DEBUG;
    const gdn_status st = gdn_levers_read(&open, NULL, &set, &err);
    if (st != GDN_OK) {
        cli_failed(&c, st, why);
    } else if (c.json) {
        cli_print_json(as_json(set, cap.overridden));
    } else {
        print_table(set, cap.overridden, meaning);
    }
    gdn_levers_free(set);
    json_decref(cap.overridden);
    return st == GDN_OK ? CLI_OK : CLI_NO;
}
