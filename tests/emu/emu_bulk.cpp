/* emu_bulk.cpp - mbarriers and bulk copies. A load happens at its issue, or when nothing else in the block can run any more (its
 * latest legal time); it then completes its bytes on the mbarrier. A store happens at its issue or at its thread's wait. */
#include "emu_async.hpp"
#include "emu_internal.hpp"
#include <cstring>

namespace emu {
/* ---- mbarriers ---- */
static const uint64_t MBAR_MARK = 0xB10C4BA7ull << 32;

static mbarrier &mbar_of(uint64_t *bar, place at, unsigned *index = nullptr) {
    uint64_t word;
    copy(&word, bar, sizeof word);
    const unsigned i = (unsigned)(word & 0xffffffffu);
    if ((word >> 32 << 32) != MBAR_MARK || i >= B.mbars || B.mb[i].where != bar)
        fail("%s:%d: the mbarrier was never initialised, or was overwritten", at.name(), at.line);
    if (index) *index = i;
    return B.mb[i];
}
void mbar_init(uint64_t *bar, uint32_t count, place at) {
    if (reinterpret_cast<uintptr_t>(bar) % 8) fail("%s:%d: mbarrier is not 8-byte aligned", at.name(), at.line);
    if (!count || count > 0xfffff) fail("%s:%d: mbarrier of %u arrivals (1 to 2^20-1)", at.name(), at.line, count);
    for (unsigned i = 0; i < B.mbars; i++)
        if (B.mb[i].where == bar) fail("%s:%d: mbarrier initialised twice", at.name(), at.line);
    if (B.mbars == MAX_MBARS) fail("%s:%d: more than %d mbarriers", at.name(), at.line, (int)MAX_MBARS);
    mbarrier &m = B.mb[B.mbars];
    m = {};
    m.where = bar;
    m.expected = m.pending = count;
    const uint64_t word = MBAR_MARK | B.mbars++;
    seen_write(bar, 8, "mbarrier.init");
    copy(bar, &word, sizeof word);
}
static void mbar_progress(unsigned i) {
    mbarrier &m = B.mb[i];
    if (m.pending || m.tx) return;
    const unsigned done = m.phase & 1;
    m.phase++;
    m.pending = m.expected;
    for (unsigned t = 0; t < B.n; t++)
        if (B.f[t].st == state::at_mbar && B.f[t].mbar == i && B.f[t].parity == done) wake(B.f[t]);
}
void mbar_arrive(uint64_t *bar, uint32_t expect_bytes, bool expect, place at) {
    unsigned i;
    mbarrier &m = mbar_of(bar, at, &i);
    if (expect && (expect_bytes == 0 || expect_bytes > 0xfffff))
        fail("%s:%d: an mbarrier counts 1 to 2^20-1 bytes, not %u", at.name(), at.line, expect_bytes);
    if (!m.pending) fail("%s:%d: one arrival too many on an mbarrier of %u", at.name(), at.line, m.expected);
    release(&m.sync[m.phase & 1]);
    m.tx += expect ? expect_bytes : 0;
    m.pending--;
    mbar_progress(i);
}
bool mbar_test(uint64_t *bar, uint32_t parity, place at) {
    mbarrier &m = mbar_of(bar, at);
    fibre &f = *me();
    if ((m.phase & 1) == (parity & 1)) {
        if (++f.tests > 1000000) fail("%s:%d: spins on gdn_mbar_test; gdn_mbar_wait lets others run", at.name(), at.line);
        return false;
    }
    f.tests = 0;
    acquire(&m.sync[parity & 1]);
    return true;
}
void mbar_wait(uint64_t *bar, uint32_t parity, place at) {
    unsigned i;
    mbarrier &m = mbar_of(bar, at, &i);
    fibre &f = *me();
    f.tests = 0;
    if ((m.phase & 1) == (parity & 1)) {
        f.mbar = i;
        f.parity = parity & 1;
        sleep(state::at_mbar, at);
    }
    acquire(&m.sync[parity & 1]);
}

/* ---- tensor maps ---- */
static const uint64_t TENSOR_MARK = 0x7E4504D0C0FFEEull;

tensor tensor_make(void *base, uint32_t element, uint32_t rank, const uint64_t *size, const uint64_t *stride, const uint32_t *box,
                   uint32_t swizzle) {
    tensor t = {};
    if (rank < 1 || rank > 3 || (swizzle && swizzle != 128)) fail("tensor map: rank %u (1 to 3), swizzle %u (0 or 128)", rank, swizzle);
    if (reinterpret_cast<uintptr_t>(base) % 16) fail("tensor map: the base is not 16-byte aligned");
    t.mark = TENSOR_MARK;
    t.base = static_cast<char *>(base);
    t.element = element;
    t.rank = rank;
    t.swizzle = swizzle;
    for (uint32_t i = 0; i < 3; i++) {
        t.size[i] = i < rank ? size[i] : 1;
        t.box[i] = i < rank ? box[i] : 1;
        if (t.box[i] < 1 || t.box[i] > 256) fail("tensor map: box %u (1 to 256)", t.box[i]);
    }
    for (uint32_t i = 0; i + 1 < rank; i++) {
        if (stride[i] % 16) fail("tensor map: stride %llu is not a multiple of 16 bytes", (unsigned long long)stride[i]);
        t.stride[i] = stride[i];
    }
    const uint32_t row = t.box[0] * element;
    if (row % 16 || (swizzle && row > swizzle)) fail("tensor map: a box row of %u bytes (a multiple of 16; at most the swizzle)", row);
    return t;
}

/* ---- what a copy does ---- */
static char *swizzled(char *p, uint32_t swizzle) {
    auto a = reinterpret_cast<uintptr_t>(p);
    return swizzle ? reinterpret_cast<char *>(a ^ (a >> 3 & 0x70)) : p;
}
static void piece(const transfer &t, char *shared, char *global, uint32_t bytes) {
    if (t.to_shared) {
        if (global) seen_read(global, bytes, "bulk load");
        seen_write(shared, bytes, "bulk load");
        for (uint32_t i = 0; i < bytes && !global; i++) static_cast<volatile char *>(shared)[i] = 0;
        if (global) copy(shared, global, bytes);
        proxy_wrote(shared, bytes);
    } else {
        proxy_read(shared, bytes, "bulk store");
        seen_read(shared, bytes, "bulk store");
        if (!global) return; /* outside the tensor: clipped */
        seen_write(global, bytes, "bulk store");
        copy(global, shared, bytes);
    }
}
static void box_row(const transfer &t, uint32_t y, uint32_t z) {
    const tensor &m = t.map;
    const int64_t gy = (int64_t)t.coordinate[1] + y, gz = (int64_t)t.coordinate[2] + z;
    const bool inside = gy >= 0 && gz >= 0 && (uint64_t)gy < m.size[1] && (uint64_t)gz < m.size[2];
    char *row = t.shared + (size_t)(z * m.box[1] + y) * m.box[0] * m.element;
    for (uint32_t x = 0; x < m.box[0]; x++) { /* by element: what is outside the tensor reads as zero and is not written */
        const int64_t gx = (int64_t)t.coordinate[0] + x;
        char *g = inside && gx >= 0 && (uint64_t)gx < m.size[0]
                      ? m.base + (size_t)gz * m.stride[1] + (size_t)gy * m.stride[0] + (size_t)gx * m.element
                      : nullptr;
        piece(t, swizzled(row + (size_t)x * m.element, m.swizzle), g, m.element);
    }
}
static void perform(const transfer &t) {
    if (!t.to_shared && self) proxy_note();
    if (!t.boxed) {
        piece(t, t.shared, t.global, t.bytes);
        return;
    }
    for (uint32_t z = 0; z < t.map.box[2]; z++)
        for (uint32_t y = 0; y < t.map.box[1]; y++) box_row(t, y, z);
}
static transfer boxed(const tensor &map, const int *coordinate, unsigned rank, char *shared, place at) {
    transfer t = {};
    copy(&t.map, &map, sizeof map);
    if (t.map.mark != TENSOR_MARK) fail("%s:%d: not a tensor map", at.name(), at.line);
    if (t.map.rank != rank) fail("%s:%d: a map of %u dimensions, used with %u", at.name(), at.line, t.map.rank, rank);
    const unsigned align = t.map.swizzle ? 1024 : 128;
    if (reinterpret_cast<uintptr_t>(shared) % align)
        fail("%s:%d: a tensor copy's shared address is not %u-byte aligned", at.name(), at.line, align);
    t.boxed = true;
    t.shared = shared;
    for (unsigned i = 0; i < rank; i++) t.coordinate[i] = coordinate[i];
    t.bytes = t.map.box[0] * t.map.box[1] * t.map.box[2] * t.map.element;
    return t;
}
static transfer plain(void *shared, const void *global, uint32_t bytes, place at) {
    transfer t = {};
    if (!bytes || ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global) | bytes) & 15))
        fail("%s:%d: a bulk copy's addresses and size are multiples of 16, and not zero", at.name(), at.line);
    t.shared = static_cast<char *>(shared);
    t.global = static_cast<char *>(const_cast<void *>(global));
    t.bytes = bytes;
    return t;
}

/* ---- loads ---- */
static void load_perform(transfer &t) {
    mbarrier &m = B.mb[t.mbar];
    engine_enter(t.engine);
    perform(t);
    engine_leave(&m.sync[m.phase & 1]);
    m.tx -= t.bytes;
    mbar_progress(t.mbar);
}
static void load_issue(transfer t, uint64_t *bar, place at) {
    t.to_shared = true;
    mbar_of(bar, at, &t.mbar);
    release(&me()->issued);
    t.engine = engine_start(&me()->issued);
    if (B.opt.at_issue) {
        load_perform(t);
        return;
    }
    if (B.load_n == MAX_LOADS) fail("%s:%d: more than %d bulk loads in flight", at.name(), at.line, (int)MAX_LOADS);
    B.loads[B.load_n++] = t;
}
bool load_step() {
    if (!B.load_n) return false;
    const order how = B.opt.threads; /* copies are not ordered among each other */
    const unsigned i = how == order::ascending ? 0 : how == order::descending ? B.load_n - 1 : random_below(B.load_n);
    transfer t = B.loads[i];
    for (unsigned k = i + 1; k < B.load_n; k++) B.loads[k - 1] = B.loads[k];
    B.load_n--;
    load_perform(t);
    return true;
}
void bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *bar, place at) {
    load_issue(plain(shared, global, bytes, at), bar, at);
}
void tensor_load(void *shared, const tensor &map, const int *coordinate, unsigned rank, uint64_t *bar, place at) {
    load_issue(boxed(map, coordinate, rank, static_cast<char *>(shared), at), bar, at);
}

/* ---- stores ---- */
static void store_perform(const transfer &t, fibre &f) {
    engine_enter(t.engine);
    perform(t);
    engine_leave(&f.finished);
}
static void store_issue(transfer t, place at) {
    fibre &f = *me();
    if (f.bulk.open == MAX_STORES) fail("%s:%d: more than %d bulk stores in flight in a thread", at.name(), at.line, (int)MAX_STORES);
    release(&f.issued);
    t.engine = engine_start(&f.issued);
    if (B.opt.at_issue) {
        store_perform(t, f);
        t.bytes = 0;
    }
    f.store[f.bulk.open++] = t;
}
void bulk_store(void *global, const void *shared, uint32_t bytes, place at) {
    store_issue(plain(const_cast<void *>(shared), global, bytes, at), at);
}
void tensor_store(const tensor &map, const int *coordinate, unsigned rank, const void *shared, place at) {
    store_issue(boxed(map, coordinate, rank, static_cast<char *>(const_cast<void *>(shared)), at), at);
}
void bulk_commit() {
    queue_commit(me()->bulk, "bulk stores");
}
void bulk_wait(unsigned keep) {
    fibre &f = *me();
    unsigned i;
    while (queue_next(f.bulk, keep, &i))
        if (f.store[i].bytes) store_perform(f.store[i], f);
    acquire(&f.finished);
}

/* ---- nothing may be left ---- */
void exit_checks(fibre &f) {
    if (f.cp.open != f.cp.done) fail("cp.async still in flight when its thread returns");
    if (f.bulk.open != f.bulk.done) fail("a bulk store may still read shared memory when its thread returns");
    products_exit(f);
}
void exit_checks_block() {
    if (B.load_n) fail("%u bulk loads still in flight when the block ends", B.load_n);
    for (unsigned i = 0; i < B.mbars; i++)
        if (B.mb[i].tx) fail("an mbarrier still expects %lld bytes when the block ends", (long long)B.mb[i].tx);
    products_exit_block();
}
void bulk_reset() {
    B.load_n = 0;
    B.mbars = 0;
}
} // namespace emu
