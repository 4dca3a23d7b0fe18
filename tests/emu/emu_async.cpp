/* emu_async.cpp - cp.async, and the queues that every kind of asynchronous work shares. */
#include "emu_async.hpp"
#include "emu_internal.hpp"

namespace emu {
void queue_commit(queue &q, const char *what) {
    if (q.commits == MAX_COMMITS) fail("more than %d groups of %s in flight", (int)MAX_COMMITS, what);
    q.end[q.commits++] = q.open;
}
bool queue_next(queue &q, unsigned keep, unsigned *item) {
    while (q.commits > keep && q.done == q.end[0]) {
        for (unsigned i = 1; i < q.commits; i++) q.end[i - 1] = q.end[i];
        q.commits--;
    }
    if (q.done == q.open) { /* empty: start over at the front */
        q.done = q.open = 0;
        for (unsigned i = 0; i < q.commits; i++) q.end[i] = 0;
    }
    if (q.commits <= keep) return false;
    *item = q.done++;
    return true;
}

static void cp_perform(const copy_item &c) {
    seen_read(c.src, c.take, "cp.async");
    seen_write(c.dst, c.size, "cp.async");
    copy(c.dst, c.src, c.take);
    for (uint32_t i = c.take; i < c.size; i++) static_cast<volatile char *>(c.dst)[i] = 0;
}
void cp_async(void *dst, const void *src, uint32_t size, uint32_t take, place at) {
    if ((reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src)) % size)
        fail("%s:%d: cp.async of %u bytes at an address that is not %u-byte aligned", at.name(), at.line, size, size);
    if (take > size) fail("%s:%d: cp.async of %u bytes asks for %u", at.name(), at.line, size, take);
    fibre &f = *me();
    if (f.cp.open == MAX_COPIES) fail("%s:%d: more than %d cp.async in flight in a thread", at.name(), at.line, (int)MAX_COPIES);
    copy_item c = { dst, src, size, take };
    if (B.opt.at_issue) {
        cp_perform(c);
        c.size = c.take = 0; /* what waits below is only the group's account */
    }
    f.cp_item[f.cp.open++] = c;
}
void cp_commit() {
    queue_commit(me()->cp, "cp.async");
}
void cp_wait(unsigned keep) {
    fibre &f = *me();
    unsigned i;
    while (queue_next(f.cp, keep, &i))
        if (f.cp_item[i].size) cp_perform(f.cp_item[i]);
}
} // namespace emu
