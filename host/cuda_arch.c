/* cuda_arch.c - architecture names against compute capabilities. The number is 10*major + minor, so 12.1 is sm_121. */
#include "cuda_backend.h"

#include <string.h>

bool gdn__arch_read(const char *arch, uint32_t *number, char *suffix) {
    if (!arch || strncmp(arch, "sm_", 3) != 0) return false;
    const char *p = arch + 3;
    uint32_t n = 0;
    const size_t digits = strspn(p, "0123456789");
    if (digits < 2 || digits > 3) return false;
    for (size_t i = 0; i < digits; i++) n = n * 10 + (uint32_t)(p[i] - '0');
    p += digits;
    const char s = *p == 'a' || *p == 'f' ? *p++ : '\0';
    if (*p) return false;
    *number = n;
    *suffix = s;
    return true;
}

bool gdn__arch_fits(const char *arch, uint32_t cc_major, uint32_t cc_minor) {
    uint32_t number;
    char suffix;
    if (!gdn__arch_read(arch, &number, &suffix)) return false;
    const uint32_t device = cc_major * 10 + cc_minor;
    return suffix == 'a' ? number == device : number / 10 == cc_major && number % 10 <= cc_minor;
}
