/* lever_grammar.c - the list of levers, and what a text means under each of the four grammars (docs/levers.md). Pure. */
#include "host_internal.h"

#include <string.h>

#define GDN__LEVER(ID, key, grammar, builtin, env, older, values, expected, off, meaning) \
    { key, grammar, builtin, env, older, values, expected, off, meaning },
const gdn__lever_def gdn__lever_defs[GDN__LEVERS] = {
#include "levers.def"
};
#undef GDN__LEVER

int gdn__lever_find(const char *key) {
    for (int i = 0; i < GDN__LEVERS; i++)
        if (!strcmp(key, gdn__lever_defs[i].key)) return i;
    return -1;
}

const char *gdn__lever_nearest(const char *key) {
    const char *keys[GDN__LEVERS];
    for (int i = 0; i < GDN__LEVERS; i++) keys[i] = gdn__lever_defs[i].key;
    return gdn__nearest(key, keys, GDN__LEVERS);
}

const char *gdn__grammar_name(uint32_t grammar) {
    static const char *const names[] = { "toggle", "presence", "exact string", "strict" };
    return grammar < 4 ? names[grammar] : "unknown";
}

/* Is text one of the words of "a|b|c"? */
static bool one_of(const char *text, const char *words) {
    const size_t n = strlen(text);
    for (const char *w = words; w;) {
        const char *bar = strchr(w, '|');
        const size_t len = bar ? (size_t)(bar - w) : strlen(w);
        if (len == n && !memcmp(w, text, n)) return true;
        w = bar ? bar + 1 : NULL;
    }
    return false;
}

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Trimmed and lower-cased 0, false, off, no. ASCII only: the host's locale has no say. */
static bool toggle_is_off(const char *text) {
    size_t n = strlen(text);
    while (n && is_blank(text[n - 1])) n--;
    while (n && is_blank(*text)) text++, n--;
    char word[8] = { 0 };
    if (!n || n >= sizeof word) return false;
    for (size_t i = 0; i < n; i++) word[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] - 'A' + 'a' : text[i]);
    return one_of(word, "0|false|off|no");
}

gdn_status gdn__lever_from_env(const gdn__lever_def *d, const char *name, const char *text, const char **value, gdn_text *err) {
    *value = text;
    switch (d->grammar) {
    case GDN__TOGGLE: *value = toggle_is_off(text) ? "false" : "true"; return GDN_OK;
    case GDN__PRESENCE: *value = "true"; return GDN_OK;
    case GDN__EXACT:
        if (d->values) *value = strcmp(text, "1") != 0 ? "0" : "1"; /* only 1 is on */
        return GDN_OK;
    default:
        if (!*text) {
            *value = NULL; /* empty is as good as unset */
            return GDN_OK;
        }
        if (one_of(text, d->values)) return GDN_OK;
        gdn__text_set(err, "%s=%s: expected %s", name, text, d->expected);
        return GDN_E_LEVER;
    }
}

gdn_status gdn__lever_from_text(const gdn__lever_def *d, const char *place, const char *text, const char **value, gdn_text *err) {
    const bool is_bool = d->grammar == GDN__TOGGLE || d->grammar == GDN__PRESENCE;
    const char *values = is_bool ? "true|false" : d->values, *expected = is_bool ? "true or false" : d->expected;
    *value = text;
    if (!values || one_of(text, values)) return GDN_OK;
    gdn__text_set(err, "%s: %s = %s: expected %s", place, d->key, text, expected);
    return GDN_E_LEVER;
}
