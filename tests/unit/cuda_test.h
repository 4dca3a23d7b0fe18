/* cuda_test.h - what the tests of the CUDA side share: the fakes, environments from lists, a cache folder that goes away. */
#ifndef GDN_CUDA_TEST_H
#define GDN_CUDA_TEST_H

#include "cuda_backend.h"
#include "cuda_driver.h"
#include "fake_cuda.h"
#include "host_test.h"
#include "nvrtc_jit.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#define FAKE_LIBCUDA FAKE_DIR "/libcuda.so.1"
#define FAKE_STUB    FAKE_DIR "/stubs/libcuda.so.1"
#define FAKE_NVRTC13 FAKE_DIR "/libnvrtc.so.13"
#define FAKE_NVRTC12 FAKE_DIR "/libnvrtc.so.12"

/* Stores the function `name` of a library into *function, whatever its type. The library stays open. */
static inline void function_of(const char *file, const char *name, void *function) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    void *symbol = dlsym(library, name);
    if (!symbol) fail_msg("%s", dlerror());
    memcpy(function, &symbol, sizeof symbol);
}
static inline fake_cuda *fake_driver(void) {
    fake_cuda_fn f;
    function_of(FAKE_LIBCUDA, "fake_cuda_state", &f);
    fake_cuda *fake = f();
    memset(fake, 0, sizeof *fake);
    fake->devices = FAKE_DEVICES;
    fake->cc[0] = 90;
    fake->cc[1] = 121;
    return fake;
}
static inline fake_nvrtc *fake_compiler(const char *file) {
    fake_nvrtc_fn f;
    function_of(file, "fake_nvrtc_state", &f);
    fake_nvrtc *fake = f();
    memset(fake, 0, sizeof *fake);
    return fake;
}

/* ---- a log that several threads may write ---- */
static inline void hear_locked(void *user, uint32_t severity, const char *area, const char *msg) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_mutex_lock(&mutex);
    hear(user, severity, area, msg);
    (void)pthread_mutex_unlock(&mutex);
}
static inline gdn__log log_threads(heard *h) {
    *h = (heard) { 0 };
    return (gdn__log) { hear_locked, h, GDN_LOG_DEBUG };
}

/* ---- an environment: pairs written as "NAME=value", NULL at the end ---- */
static inline gdn__env env_of(const char *const *vars) {
    gdn__env env;
    assert_int_equal(gdn__env_capture(&env, (char *const *)(uintptr_t)vars, false), GDN_OK);
    return env;
}

/* ---- folders ---- */
static inline void remove_tree(const char *path) {
    char command[256];
    assert_true(strncmp(path, "/tmp/gdn_test_", 14) == 0 && !strchr(path, '\''));
    (void)snprintf(command, sizeof command, "chmod -R u+rwX '%s' && rm -rf '%s'", path, path);
    assert_int_equal(system(command), 0);
}

typedef struct tree {
    unsigned entries, sides, temps, locks, others, bad;
    char last[512]; /* path of an entry that is not in bad/ */
} tree;
static inline void count_file(void *user, const gdn__found *f) {
    tree *t = user;
    if (f->bad) {
        t->bad += f->kind == GDN__IS_ENTRY;
        return;
    }
    if (f->kind == GDN__IS_ENTRY) (void)snprintf(t->last, sizeof t->last, "%s", f->path);
    t->entries += f->kind == GDN__IS_ENTRY;
    t->sides += f->kind == GDN__IS_SIDE;
    t->temps += f->kind == GDN__IS_TEMP;
    t->locks += f->kind == GDN__IS_LOCK;
    t->others += f->kind == GDN__IS_OTHER;
}
static inline tree count_tree(const char *root) {
    tree t = { 0 };
    reason r;
    const gdn_status st = gdn__cache_walk(root, count_file, &t, reason_of(&r));
    if (st != GDN_OK && st != GDN_ABSENT) fail_msg("%s", r.buf);
    return t;
}

/* ---- modules ---- */
static inline gdn_compile_job job_for(const char *name, const char *source, const char *arch) {
    return (gdn_compile_job) { .struct_size = (uint32_t)sizeof(gdn_compile_job), .name = name, .source = source, .arch = arch };
}

#endif
