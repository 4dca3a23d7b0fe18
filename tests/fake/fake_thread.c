/* fake_thread.c - see fake_thread.h. Not thread-local variables: the emulator's static shared memory is the block of those. */
#include "fake_thread.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_key_t threads;
static pthread_once_t threads_once = PTHREAD_ONCE_INIT;
static void make_threads(void) {
    (void)pthread_key_create(&threads, free);
}

fake_thread *fake_mine(void) {
    (void)pthread_once(&threads_once, make_threads);
    fake_thread *t = pthread_getspecific(threads);
    if (!t) {
        t = calloc(1, sizeof *t);
        if (!t) abort();
        (void)pthread_setspecific(threads, t);
    }
    return t;
}
