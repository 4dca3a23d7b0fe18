/* fuzz_config.c - any bytes as config.json: refused with one line, or a geometry within its ranges. */
#include "model_config.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char buf[300] = "";
    gdn_text err = { buf, sizeof buf, 0 };
    gdn_model_config c;
    if (gdn_config_parse(data, size, "input", &c, &err) != GDN_OK) {
        if (!buf[0] || strchr(buf, '\n')) abort();
        return 0;
    }
    if (!c.vocab || !c.hidden || c.hidden % 8 || !c.inter || !c.layers || !c.nk || c.nv % c.nk || c.k_dim != c.v_dim || !(c.eps > 0))
        abort();
    return 0;
}
