/* mock_backend.c - see mock_backend.h. */
#include "mock_backend.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool fails(mock *m) {
    return ++m->calls == m->fail_at;
}

static gdn_status device_count(void *user, uint32_t *out) {
    mock *m = user;
    if (fails(m)) return m->fail_with;
    *out = m->devices;
    return GDN_OK;
}

static gdn_status device(void *user, int32_t ordinal, gdn_device *out) {
    mock *m = user;
    if (fails(m)) return m->fail_with;
    if (ordinal < 0 || (uint32_t)ordinal >= m->devices) return GDN_E_ARG;
    const uint32_t room = out->struct_size < sizeof *out ? out->struct_size : (uint32_t)sizeof *out;
    memcpy(out, &m->device[ordinal], room);
    out->struct_size = room;
    return GDN_OK;
}

static gdn_status modules_load(void *user, int32_t ordinal, uint32_t n, const gdn_compile_job *jobs, void **modules, gdn_status *status,
                               gdn_text *err) {
    mock *m = user;
    gdn_status first = GDN_OK;
    m->loads++;
    for (uint32_t i = 0; i < n; i++) {
        const bool broken = m->broken_module && strcmp(m->broken_module, jobs[i].name) == 0;
        modules[i] = NULL;
        status[i] = fails(m) ? m->fail_with : broken ? GDN_E_COMPILE : m->modules == MOCK_MAX_MODULES ? GDN_E_NOMEM : GDN_OK;
        if (status[i]) {
            if (err && err[i].cap)
                err[i].len = (uint64_t)snprintf(err[i].buf, err[i].cap, "%s(12): error: planted%s", jobs[i].name,
                                                m->broken_log ? m->broken_log : "");
            if (!first) first = status[i];
            continue;
        }
        mock_module *k = &m->module[m->modules++];
        *k = (mock_module) { .ordinal = ordinal, .loaded = true };
        snprintf(k->name, sizeof k->name, "%s", jobs[i].name);
        snprintf(k->arch, sizeof k->arch, "%s", jobs[i].arch);
        snprintf(k->option, sizeof k->option, "%s", jobs[i].options[jobs[i].n_options - 1]);
        modules[i] = k;
    }
    return first;
}

static void module_unload(void *user, int32_t ordinal, void *module) {
    (void)user;
    mock_module *k = module;
    if (!k->loaded || k->ordinal != ordinal) abort(); /* twice, or on the wrong device */
    k->loaded = false;
}

static gdn_status function(void *user, void *module, const char *entry, void **out) {
    mock *m = user;
    const mock_module *k = module;
    *out = NULL;
    if (fails(m)) return m->fail_with;
    if ((m->broken_entry && strcmp(m->broken_entry, entry) == 0) || m->functions == MOCK_MAX_FUNCTIONS) return GDN_E_LOAD;
    mock_function *f = &m->function[m->functions++];
    *f = (mock_function) { .smem = 48 * 1024 };
    snprintf(f->entry, sizeof f->entry, "%s", entry);
    snprintf(f->module, sizeof f->module, "%s", k->name);
    snprintf(f->option, sizeof f->option, "%s", k->option);
    *out = f;
    return GDN_OK;
}

static gdn_status set_smem(void *user, void *fn, uint32_t bytes) {
    mock *m = user;
    if (fails(m)) return m->fail_with;
    ((mock_function *)fn)->smem = bytes;
    return GDN_OK;
}

static gdn_status capturing(void *user, int32_t ordinal, void *stream, uint32_t *out) {
    mock *m = user;
    (void)ordinal;
    (void)stream;
    if (fails(m)) return m->fail_with;
    *out = m->capturing;
    return GDN_OK;
}

static gdn_status launch(void *user, void *fn, const gdn_dims *dims, void *stream, void **params) {
    mock *m = user;
    if (fails(m)) return m->fail_with;
    if (dims->smem_bytes > ((mock_function *)fn)->smem) return GDN_E_DRIVER; /* as the driver would */
    m->last = (mock_launch) { .function = fn, .dims = *dims, .stream = stream };
    for (uint32_t i = 0; i < m->params && params[i]; i++) memcpy(&m->last.param[i], params[i], sizeof m->last.param[i]);
    if (m->launches < MOCK_MAX_LAUNCHES) m->history[m->launches] = m->last;
    m->launches++;
    return GDN_OK;
}

static gdn_status launch_early(void *user, void *fn, const gdn_dims *dims, void *stream, void **params) {
    mock *m = user;
    const gdn_status st = launch(user, fn, dims, stream, params);
    m->early += st == GDN_OK;
    return st;
}

static void log_line(void *user, uint32_t severity, const char *area, const char *msg) {
    mock *m = user;
    if (m->lines < MOCK_MAX_LINES) snprintf(m->line[m->lines++], sizeof *m->line, "%u %s: %s", severity, area, msg);
}

static gdn_status lever(void *user, const char *key, gdn_lever *out) {
    const mock *m = user;
    for (uint32_t i = 0; i < m->levers; i++)
        if (strcmp(m->lever_key[i], key) == 0) {
            *out = (gdn_lever) { (uint32_t)sizeof *out, GDN_FROM_API, m->lever_value[i], "test" };
            return GDN_OK;
        }
    return GDN_ABSENT;
}

static uint32_t once(void *user, uint32_t slot) {
    mock *m = user;
    const uint64_t bit = (uint64_t)1 << slot;
    const bool first = !(m->once & bit);
    m->once |= bit;
    return first;
}

void mock_init(mock *m, uint32_t cc, uint32_t sms) {
    memset(m, 0, sizeof *m);
    m->table = (gdn_backend) { .struct_size = (uint32_t)sizeof m->table,
                               .abi_minor = GDN_ABI_MINOR,
                               .name = "mock",
                               .user = m,
                               .device_count = device_count,
                               .device = device,
                               .modules_load = modules_load,
                               .module_unload = module_unload,
                               .function = function,
                               .set_smem = set_smem,
                               .capturing = capturing,
                               .launch = launch,
                               .launch_early = launch_early };
    m->host = (gdn_host) { .struct_size = (uint32_t)sizeof m->host,
                           .abi_minor = GDN_ABI_MINOR,
                           .user = m,
                           .log = log_line,
                           .lever = lever,
                           .once = once,
                           .backend = &m->table };
    m->devices = 2;
    m->fail_with = GDN_E_DRIVER;
    for (int32_t i = 0; i < 2; i++)
        m->device[i] =
            (gdn_device) { (uint32_t)sizeof(gdn_device), i, "mock device", cc / 10, cc % 10, sms, 227 * 1024, (uint64_t)1 << 36 };
}

void mock_lever(mock *m, const char *key, const char *value) {
    if (m->levers == sizeof m->lever_key / sizeof *m->lever_key) abort();
    m->lever_key[m->levers] = key;
    m->lever_value[m->levers++] = value;
}

uint32_t mock_loaded(const mock *m) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->modules; i++) n += m->module[i].loaded;
    return n;
}

uint32_t mock_count_lines(const mock *m, const char *text) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->lines; i++) n += strstr(m->line[i], text) != NULL;
    return n;
}

bool mock_said(const mock *m, const char *text) {
    return mock_count_lines(m, text) > 0;
}

const gdn_plugin *mock_plugin(const char *target) {
    char path[1024];
    snprintf(path, sizeof path, "%s/libgdn_%s.so", GDN_PLUGIN_DIR, target);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) return fprintf(stderr, "%s\n", dlerror()), NULL;
    gdn_plugin_query_fn query;
    void *symbol = dlsym(object, "gdn_plugin_query");
    memcpy(&query, &symbol, sizeof query);
    return symbol ? query(GDN_ABI_MAJOR, GDN_ABI_MINOR) : NULL;
}
