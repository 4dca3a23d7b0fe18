/* cli_json.c - the JSON side of the command: documents, texts that are not UTF-8, and the document of a failure. */
#include "cli_state.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

cli_state cli_run;

/* Length of the UTF-8 sequence at s, 0 when there is none (overlong, surrogate, above U+10FFFF, cut). */
static size_t sequence(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    const size_t n = s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    const unsigned char lo = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80, hi = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (!n || s[1] < lo || s[1] > hi) return 0;
    for (size_t i = 2; i < n; i++)
        if (s[i] < 0x80 || s[i] > 0xbf) return 0;
    return n;
}

void *cli_keep(size_t bytes) {
    static struct kept {
        struct kept *next;
        char data[];
    } * all; /* reachable: a leak checker has nothing to say */
    struct kept *k = malloc(sizeof *k + bytes);
    if (!k) return NULL;
    k->next = all;
    all = k;
    return k->data;
}

const char *cli_text(const char *text) {
    size_t bad = 0;
    if (!text) return NULL;
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        const size_t n = sequence(s);
        bad += !n;
        s += n ? n : 1;
    }
    if (!bad) return text;
    char *copy = cli_keep(strlen(text) + 3 * bad + 1), *to = copy;
    if (!copy) return "(out of memory)";
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        const size_t n = sequence(s);
        if (n)
            memcpy(to, s, n);
        else
            (void)snprintf(to, 5, "\\x%02x", (unsigned)*s);
        to += n ? n : 4;
        s += n ? n : 1;
    }
    *to = '\0';
    return copy;
}

void cli_print_json(json_t *doc) {
    char *text = doc ? json_dumps(doc, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(doc);
    if (!text) {
        static const char what[] = "the JSON document could not be made";
        (void)fprintf(stderr, "gdn: %s\n", what);
        (void)printf("{\n  \"error\": \"%s\",\n  \"schema\": 1\n}\n", what);
        (void)fflush(stdout);
        exit(CLI_NO);
    }
    cli_run.printed = true;
    (void)puts(text);
    free(text);
}

/* getopt has said on stderr what is wrong with an option; this is the same for the document. */
static void option_refused(int argc, char *const *argv, char *buf, size_t size) {
    const char *option = optind > 1 && optind <= argc ? argv[optind - 1] : "", *here = optind > 0 && optind < argc ? argv[optind] : "";
    if (here[0] == '-' && here[1] != '-' && here[1] == optopt) option = here; /* one letter of several */
    const char *what = !optopt || option[1] != '-' ? "unrecognized or ambiguous option"
                       : strchr(option, '=')       ? "no argument is allowed for"
                                                   : "an argument is missing for";
    (void)snprintf(buf, size, "%s '%s'", what, option);
}

/* --json was read, or stands behind what the command stopped at. */
static bool json_wanted(int code, int argc, char *const *argv) {
    bool wanted = cli_run.json;
    for (int i = 1; i < argc && code == CLI_USAGE && !wanted; i++) wanted = !strcmp(argv[i], "--json");
    return wanted;
}

int cli_finish(int code) {
    const int argc = cli_run.argc;
    char *const *argv = cli_run.argv;
    if (code == CLI_NO && cli_run.fault) code = CLI_USAGE;
    if (code == CLI_OK || cli_run.printed || !json_wanted(code, argc, argv)) return code;
    if (!*cli_run.error && code == CLI_USAGE) option_refused(argc, argv, cli_run.error, sizeof cli_run.error);
    const char *error = *cli_run.error ? cli_run.error : "the answer is no";
    cli_print_json(json_pack("{s:i, s:s}", "schema", 1, "error", cli_text(error)));
    return code;
}
