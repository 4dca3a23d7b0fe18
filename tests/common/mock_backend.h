/* mock_backend.h - a backend without a device for plugin files: records what it is asked, and fails the n-th call on demand. */
#ifndef GDN_TESTS_MOCK_BACKEND_H
#define GDN_TESTS_MOCK_BACKEND_H

#include "gdn_plugin.h"
#include <stdbool.h>

enum { MOCK_MAX_MODULES = 64, MOCK_MAX_FUNCTIONS = 256, MOCK_MAX_PARAMS = 48, MOCK_MAX_LINES = 64, MOCK_MAX_LAUNCHES = 32 };

typedef struct mock_function {
    char entry[64], module[64], option[64]; /* option: the last one of its module's job */
    uint32_t smem;                          /* what set_smem allowed */
} mock_function;

typedef struct mock_module {
    char name[64], arch[16], option[64];
    int32_t ordinal;
    bool loaded;
} mock_module;

/* The last launch. A parameter is read as its first 8 bytes; 4-byte ones have garbage above. */
typedef struct mock_launch {
    const mock_function *function;
    gdn_dims dims;
    void *stream;
    uint64_t param[MOCK_MAX_PARAMS];
} mock_launch;

typedef struct mock {
    gdn_backend table;
    gdn_host host;
    gdn_device device[2]; /* what device() answers per ordinal */
    uint32_t devices;
    uint32_t calls;   /* failing entries so far */
    uint32_t fail_at; /* 1-based call that fails; 0: none */
    gdn_status fail_with;
    uint32_t capturing; /* what capturing() answers */
    uint32_t params;    /* how many parameters the next launch is read for */
    mock_module module[MOCK_MAX_MODULES];
    uint32_t modules, loads; /* slots used; modules_load calls */
    mock_function function[MOCK_MAX_FUNCTIONS];
    uint32_t functions;
    const char *broken_module; /* a module file that does not compile */
    const char *broken_log;    /* what its compiler says behind the first line */
    const char *broken_entry;  /* an entry that is not in its module */
    mock_launch last;
    mock_launch history[MOCK_MAX_LAUNCHES]; /* without parameters; the first ones */
    uint32_t launches, early;               /* early: of them, by launch_early */
    const char *lever_key[8], *lever_value[8];
    uint32_t levers;
    char line[MOCK_MAX_LINES][400]; /* log lines, "severity area: text" */
    uint32_t lines;
    uint64_t once; /* flags handed out */
} mock;

/* A device of compute capability cc (90 or 121, ...), `sms` multiprocessors. */
void mock_init(mock *m, uint32_t cc, uint32_t sms);
void mock_lever(mock *m, const char *key, const char *value);
uint32_t mock_loaded(const mock *m); /* modules loaded and not unloaded */
bool mock_said(const mock *m, const char *text);
uint32_t mock_count_lines(const mock *m, const char *text);
/* Opens a plugin file by target name and asks it; NULL when it cannot be loaded. The object stays mapped. */
const gdn_plugin *mock_plugin(const char *target);

#endif
