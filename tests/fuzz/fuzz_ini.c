/* fuzz_ini.c - any bytes as a settings file: it is read or refused with one line that begins with its name, and nothing else. */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char why[512] = "";
    gdn_text err = { why, sizeof why, 0 };
    gdn__ini ini;
    memset(&ini, 0, sizeof ini);
    const gdn_status st = gdn__ini_parse("f.ini", (const char *)data, size, &ini, &err);
    if (st != GDN_OK && (st != GDN_E_CONF || strncmp(why, "f.ini:", 6) != 0)) abort();
    for (int i = 0; i < GDN__LEVERS; i++) {
        /* What was read is inside its grammar, from a line of the file, and never an empty word. */
        const char *seen;
        if (ini.value[i] && (!ini.line[i] || ini.line[i] > size || !*ini.value[i])) abort();
        if (ini.value[i] && gdn__lever_from_text(&gdn__lever_defs[i], "f.ini", ini.value[i], &seen, NULL) != GDN_OK) abort();
        free(ini.value[i]);
    }
    return 0;
}
