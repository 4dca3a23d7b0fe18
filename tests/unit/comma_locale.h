/* comma_locale.h - a locale with a comma as the decimal point, where none need be installed.
 *
 * glibc looks for locales in $LOCPATH first; a category's file is a magic number, the number of values, where each begins,
 * and the values. LC_NUMERIC has six: the point, the separator, the grouping, the first two as wide characters, the charset. */
#ifndef GDN_TEST_COMMA_LOCALE_H
#define GDN_TEST_COMMA_LOCALE_H

#include <locale.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMA_LOCALE_NAME "comma_TEST"
static char comma_locale_dir[] = "comma-XXXXXX";

/* glibc does not give back the list that it makes of LOCPATH; AddressSanitizer's leak check asks here. Its symbol is __argz_add_sep
 * where glibc's debug symbols are installed: a part of the name matches both. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:argz_add_sep\n";
}

static inline void comma_locale_remove(void) {
    char path[80];
    (void)snprintf(path, sizeof path, "%s/" COMMA_LOCALE_NAME "/LC_NUMERIC", comma_locale_dir);
    (void)unlink(path);
    (void)snprintf(path, sizeof path, "%s/" COMMA_LOCALE_NAME, comma_locale_dir);
    (void)rmdir(path);
    (void)rmdir(comma_locale_dir);
    (void)unsetenv("LOCPATH");
}

/* A locale object, the calling thread's after uselocale(); (locale_t)0 where the C library reads no such file and de_DE is not
 * installed. setlocale(LC_NUMERIC, *name) works as well. */
static inline locale_t comma_locale_make(const char **name) {
    enum { VALUES = 6, FIRST = (2 + VALUES) * 4 };
    uint32_t file[FIRST / 4 + 5] = { 0x20031115u ^ (uint32_t)LC_NUMERIC, VALUES };
    char path[80], *at = (char *)(file + FIRST / 4);
    const uint32_t place[VALUES] = { 0, 2, 3, 8, 12, 16 };
    const uint32_t wide[2] = { ',', 0 };
    memcpy(at, ",", 2);
    memcpy(at + 8, wide, sizeof wide);
    memcpy(at + 16, "C", 2);
    for (uint32_t i = 0; i < VALUES; i++) file[2 + i] = FIRST + place[i];
    if (!mkdtemp(comma_locale_dir)) abort();
    (void)snprintf(path, sizeof path, "%s/" COMMA_LOCALE_NAME, comma_locale_dir);
    if (mkdir(path, 0700) != 0) abort();
    (void)snprintf(path, sizeof path, "%s/" COMMA_LOCALE_NAME "/LC_NUMERIC", comma_locale_dir);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(file, 1, sizeof file, f) != sizeof file || fclose(f) != 0) abort();
    (void)setenv("LOCPATH", comma_locale_dir, 1);
    *name = COMMA_LOCALE_NAME;
    locale_t made = newlocale(LC_NUMERIC_MASK, *name, (locale_t)0);
    if (made) return made;
    comma_locale_remove();
    *name = "de_DE.UTF-8";
    return newlocale(LC_NUMERIC_MASK, *name, (locale_t)0);
}

#endif
