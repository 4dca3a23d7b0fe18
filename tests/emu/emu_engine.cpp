/* emu_engine.cpp - for the thread sanitizer, asynchronous work is done by threads of its own ("engines"): each knows what its issuer
 * knew at the issue, and the waiter learns what it did at the wait. So an access between the two that nothing orders is a race, no
 * matter when the schedule does the work. A few engines take turns; an engine that is used again knows a little more than it
 * should, which can only hide a race, not invent one. Without that sanitizer nothing happens here. */
#include "emu_internal.hpp"

#ifdef EMU_TSAN
extern "C" const char *__tsan_default_options();
extern "C" const char *__tsan_default_options() {
    return "atexit_sleep_ms=0"; /* fibres count as threads: every exit would wait a second for them */
}
#endif

namespace emu {
#ifdef EMU_TSAN
enum { ENGINES = 32 };
static void *fibre_of[ENGINES];
static unsigned turn;

static void *current() {
    return self ? me()->ctx.tsan : B.main.tsan;
}
unsigned engine_start(void *known) {
    const unsigned e = turn++ % ENGINES;
    if (!fibre_of[e]) fibre_of[e] = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(fibre_of[e], 1);
    acquire(known);
    __tsan_switch_to_fiber(current(), 1);
    return e;
}
void engine_enter(unsigned e) {
    __tsan_switch_to_fiber(fibre_of[e], 1);
}
void engine_leave(void *done) {
    release(done);
    __tsan_switch_to_fiber(current(), 1);
}
#else
unsigned engine_start(void *) {
    return 0;
}
void engine_enter(unsigned) {}
void engine_leave(void *) {}
#endif
} // namespace emu
