/* ini_read.c - one settings file: "[defaults]" and "key = value" lines.
 *
 * inih splits the lines; the reader that feeds it does what inih as packaged does not: it strips leading blanks (inih would
 * join an indented key to the line above), counts lines, sees every section header, and rejects what would be cut or read
 * differently under another locale. Numbers do not occur: values are words, compared byte for byte. */
#include "host_internal.h"

#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char SECTION[] = "defaults";

typedef struct source {
    const char *path, *at, *end;
    uint32_t line;
    bool in_section;
    gdn_status status;
    gdn__ini *out;
    gdn_text *err;
} source;

static void fail(source *s, gdn_status st, const char *key, const char *what) {
    if (s->status != GDN_OK) return; /* the first one is told */
    s->status = st;
    gdn__text_set(s->err, "%s:%u: %s%s%s", s->path, (unsigned)s->line, key ? key : "", key ? ": " : "", what);
}

/* "[name]" and nothing behind it but a comment. */
static void section_header(source *s, const char *text, size_t n) {
    const char *close = memchr(text, ']', n);
    const size_t len = close ? (size_t)(close - text - 1) : 0;
    char what[160];
    s->in_section = false;
    if (!close) {
        fail(s, GDN_E_CONF, NULL, "a section header without ']'");
        return;
    }
    if (len != sizeof SECTION - 1 || memcmp(text + 1, SECTION, len) != 0) {
        (void)snprintf(what, sizeof what, "unknown section [%.*s]; the only one is [%s]", (int)(len < 64 ? len : 64), text + 1, SECTION);
        fail(s, GDN_E_CONF, NULL, what);
        return;
    }
    const char *rest = close + 1, *end = text + n;
    while (rest < end && (*rest == ' ' || *rest == '\t')) rest++;
    if (rest < end && *rest != ';' && *rest != '#') fail(s, GDN_E_CONF, NULL, "text behind a section header");
    s->in_section = true;
}

/* A value must not hide a comment that inih does not know, nor bytes that nobody sees. */
static void plain_line(source *s, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char what[64];
        if ((unsigned char)text[i] >= 0x20 || text[i] == '\t') continue;
        (void)snprintf(what, sizeof what, "control character 0x%02x", (unsigned)(unsigned char)text[i]);
        fail(s, GDN_E_CONF, NULL, what);
        return;
    }
    const char *eq = memchr(text, '=', n);
    if (!eq) fail(s, GDN_E_CONF, NULL, "not 'key = value', a [section] or a comment");
}

/* inih's reader: the next line without its end, or NULL. */
static char *next_line(char *buf, int size, void *user) {
    source *s = user;
    if (s->status != GDN_OK || s->at == s->end) return NULL;
    const char *text = s->at, *stop = memchr(text, '\n', (size_t)(s->end - text));
    s->at = stop ? stop + 1 : s->end;
    if (!stop) stop = s->end;
    s->line++;
    while (stop > text && (stop[-1] == '\r' || stop[-1] == ' ' || stop[-1] == '\t')) stop--;
    while (text < stop && (*text == ' ' || *text == '\t')) text++;

    size_t n = (size_t)(stop - text);
    if (n && (*text == ';' || *text == '#')) n = 0; /* comments may be as long as they like */
    if (n && *text == '[') {
        section_header(s, text, n);
    } else if (n) {
        plain_line(s, text, n);
    }
    if (size < 2 || n > (size_t)size - 1) {
        char what[80];
        (void)snprintf(what, sizeof what, "the line is %zu bytes long, at most %d are read", n, size - 1);
        fail(s, GDN_E_CONF, NULL, what);
    }
    if (s->status != GDN_OK) return NULL;
    memcpy(buf, text, n);
    buf[n] = '\0';
    return buf;
}

/* inih's handler: one key. 0 stops nothing by itself; the reader ends the stream once an error is told. */
static int one_key(void *user, const char *section, const char *name, const char *value) {
    source *s = user;
    char what[256];
    const int i = gdn__lever_find(name);
    if (s->status != GDN_OK) return 0;
    if (!s->in_section || strcmp(section, SECTION) != 0) {
        fail(s, GDN_E_CONF, name, "a key outside a section; put it under [defaults]");
    } else if (i < 0) {
        const char *near = gdn__lever_nearest(name);
        (void)snprintf(what, sizeof what, "unknown key%s%s%s", near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
        fail(s, GDN_E_CONF, name, what);
    } else if (s->out->line[i]) {
        (void)snprintf(what, sizeof what, "set before, in line %u", (unsigned)s->out->line[i]);
        fail(s, GDN_E_CONF, name, what);
    } else if (!*value) {
        fail(s, GDN_E_CONF, name, "no value; leave the key out for the built-in one");
    } else if (strstr(value, " #") || strstr(value, "\t#")) {
        fail(s, GDN_E_CONF, name, "' #' inside a value: a comment behind a value begins with ' ;'");
    } else if (gdn__lever_defs[i].grammar == GDN__PRESENCE) {
        const gdn__lever_def *d = &gdn__lever_defs[i];
        (void)snprintf(what, sizeof what, "a switch of the environment (%s), not of files%s%s%s", d->env, d->off ? "; write " : "",
                       d->off ? d->off : "", d->off ? " = false" : "");
        fail(s, GDN_E_CONF, name, what);
    } else {
        char place[512];
        const char *seen;
        (void)snprintf(place, sizeof place, "%s:%u", s->path, (unsigned)s->line);
        if (gdn__lever_from_text(&gdn__lever_defs[i], place, value, &seen, s->err) != GDN_OK) {
            s->status = GDN_E_CONF;
        } else {
            s->out->line[i] = s->line;
            s->out->value[i] = gdn__copy(seen);
            if (!s->out->value[i]) fail(s, GDN_E_NOMEM, NULL, gdn_status_text(GDN_E_NOMEM));
        }
    }
    return s->status == GDN_OK;
}

gdn_status gdn__ini_parse(const char *path, const char *text, size_t size, gdn__ini *out, gdn_text *err) {
    source s = { .path = path, .at = text, .end = text + size, .out = out, .err = err };
    static const char bom[] = { '\xef', '\xbb', '\xbf' };
    if (size >= sizeof bom && !memcmp(text, bom, sizeof bom)) s.at += sizeof bom;
    const int bad_line = ini_parse_stream(next_line, &s, one_key, &s);
    if (s.status == GDN_OK && bad_line != 0) {
        /* A line that the reader let through and inih did not. */
        s.line = bad_line > 0 ? (uint32_t)bad_line : s.line;
        fail(&s, GDN_E_CONF, NULL, "not 'key = value', a [section] or a comment");
    }
    return s.status;
}

void gdn__ini_free(gdn__ini *ini) {
    if (!ini) return;
    for (int i = 0; i < GDN__LEVERS; i++) free(ini->value[i]);
    free(ini->path);
    free(ini);
}
