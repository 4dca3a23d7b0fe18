/* fake_thread.h - what the fake driver keeps of each thread: its stack of contexts and the mode of its captures. */
#ifndef GDN_FAKE_THREAD_H
#define GDN_FAKE_THREAD_H

typedef struct fake_context {
    int device;
} fake_context;
typedef struct fake_thread {
    fake_context *stack[16];
    int depth, mode;
} fake_thread;
/* The calling thread's; made when it first asks, freed when it ends. */
fake_thread *fake_mine(void);

#endif
