/* test_self_faults.cpp - the emulator must catch each planted fault, and pass its right twin. A fault runs in a child process under
 * every schedule; what it leaves behind (a message of the emulator, bytes that depend on the schedule or are wrong, a report of a
 * sanitizer) is the verdict; which of them must catch what in which build stands with each. Messages that do not depend on the build
 * are not asked for again under the thread sanitizer. The parent launches nothing: a fork with fibres alive would mute that one. */
#include "emu_check.hpp"
#include "self_hopper.cuh"
#include "self_kernels.cuh"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

using emu::options;
typedef std::function<void(const options &)> launcher;

#if defined(__SANITIZE_THREAD__)
#define BUILD_TSAN 1
#define BUILD_ASAN 0
#elif defined(EMU_PLAIN_STATICS)
#define BUILD_TSAN 0
#define BUILD_ASAN 1
#else
#define BUILD_TSAN 0
#define BUILD_ASAN 0
#endif

/* ---- one case: a kernel, its output, and what must be seen ---- */
struct kernel_case {
    dim3 grid, block;
    size_t smem;
    options base;
    std::function<void()> body;
    void *out;
    size_t bytes;
};
/* In the child. Says on stdout what it saw. */
static int in_child(const kernel_case &k) {
    std::string first;
    for (const emu::schedule &s : emu::schedules()) {
        options o = s.opt;
        o.smem_align = k.base.smem_align;
        o.check_proxy = k.base.check_proxy;
        memset(k.out, 0xEE, k.bytes);
        try {
            emu::launch(k.grid, k.block, k.smem, o, k.body);
        } catch (const emu::error &e) {
            printf("ERROR %s\n", e.what());
            return 0;
        }
        const std::string now(static_cast<char *>(k.out), k.bytes);
        if (first.empty())
            first = now;
        else if (now != first) {
            printf("BYTES differ under `%s`\n", s.name);
            return 0;
        }
    }
    printf("NOTHING\n");
    return 0;
}
static std::string observe(const kernel_case &k) {
    int fd[2];
    if (pipe(fd)) exit(1);
    fflush(stdout);
    const pid_t pid = fork();
    if (pid < 0) exit(1);
    if (!pid) {
        dup2(fd[1], 1);
        dup2(fd[1], 2);
        close(fd[0]);
        exit(in_child(k));
    }
    close(fd[1]);
    std::string seen;
    char b[4096];
    for (ssize_t n; (n = read(fd[0], b, sizeof b)) > 0;) seen.append(b, (size_t)n);
    close(fd[0]);
    int status;
    waitpid(pid, &status, 0);
    return seen;
}
static bool holds(const std::string &seen, const char *text) {
    return seen.find(text) != std::string::npos;
}
static std::string short_form(const std::string &seen) {
    const char *mark[] = { "WARNING: ThreadSanitizer: data race", "ERROR: AddressSanitizer", "ERROR ", "BYTES", "runtime error" };
    for (const char *m : mark) {
        const size_t i = seen.find(m);
        if (i != std::string::npos) return seen.substr(i, std::min(seen.find('\n', i) - i, (size_t)150));
    }
    return seen.substr(0, 80);
}

enum verdict {
    NO = 0,       /* this build does not promise it */
    BYTES = 1,    /* bytes that depend on the schedule */
    NAMED = 2,    /* the emulator's own message, holding `text` */
    RACE = 4,     /* a report of the thread sanitizer */
    SANITIZER = 8 /* a report of the address or undefined-behaviour sanitizer */
};
struct expectation {
    int plain, asan, tsan;
    const char *text;
};
static void fault(emu::bench &b, const char *what, const kernel_case &k, const expectation &want) {
    const int need = BUILD_TSAN ? want.tsan : BUILD_ASAN ? want.asan : want.plain;
    if (need == NO) return;
    const std::string seen = observe(k);
    const bool ok = ((need & BYTES) && holds(seen, "BYTES")) || ((need & NAMED) && holds(seen, "ERROR ") && holds(seen, want.text)) ||
                    ((need & RACE) && holds(seen, "ThreadSanitizer: data race")) ||
                    ((need & SANITIZER) && (holds(seen, "AddressSanitizer") || holds(seen, "runtime error")));
    printf("    %-44s %s\n", what, short_form(seen).c_str());
    b.expect(ok, what);
}
static void right(emu::bench &b, const char *what, const kernel_case &k) {
    const std::string seen = observe(k);
    if (seen != "NOTHING\n") printf("    %-44s %s\n", what, seen.c_str());
    b.expect(seen == "NOTHING\n", what);
}
static options aligned(bool proxy = false) {
    options o;
    o.smem_align = 1024;
    o.check_proxy = proxy;
    return o;
}

static void races(emu::bench &b) {
    auto &x = b.input<float>("x", 3 * 64, [](size_t i) { return (float)(i % 97); });
    auto &w = b.input<float>("w", 32, [](size_t i) { return (float)i; });
    auto &y = b.input<uint4>("y", 5 * 64, [](size_t i) { return uint4 { 0, (unsigned)(i * i), 0, 0 }; });
    auto &o = b.output<float>("o", 3);
    auto &v = b.output<float>("v", 32);
    auto &u = b.output<uint32_t>("u", 64);
    auto sum = [&](std::function<void()> f) { return kernel_case { 1, 64, 0, {}, f, o.p, 12 }; };
    auto warp = [&](std::function<void()> f) { return kernel_case { 1, 32, 0, {}, f, v.p, 128 }; };
    auto stages = [&](std::function<void()> f) { return kernel_case { 1, 64, 0, {}, f, u.p, 256 }; };
    right(b, "sum", sum([&] { self_sum<0>(x.p, o.p, 3); }));
    right(b, "warp hand-over", warp([&] { self_warp<0>(w.p, v.p); }));
    right(b, "two stages", stages([&] { self_stages<0>(y.p, u.p, 5); }));
    fault(b, "barrier before the reader removed", sum([&] { self_sum<1>(x.p, o.p, 3); }), { BYTES, BYTES, RACE, "" });
    fault(b, "second barrier removed", sum([&] { self_sum<2>(x.p, o.p, 3); }), { BYTES, BYTES, RACE, "" });
    fault(b, "__syncwarp before the reader removed", warp([&] { self_warp<1>(w.p, v.p); }), { BYTES, BYTES, RACE, "" });
    fault(b, "__syncwarp before the next write removed", warp([&] { self_warp<2>(w.p, v.p); }), { BYTES, BYTES, RACE, "" });
    fault(b, "barrier after cp.async's wait removed", stages([&] { self_stages<1>(y.p, u.p, 5); }), { BYTES, BYTES, RACE, "" });
    fault(b, "barrier before the stage is refilled removed", stages([&] { self_stages<2>(y.p, u.p, 5); }), { BYTES, BYTES, RACE, "" });
    fault(b, "cp.async's wait removed", stages([&] { self_stages<3>(y.p, u.p, 5); }), { NAMED, NAMED, NO, "cp.async still in flight" });
}

static void bounds(emu::bench &b) {
    auto &x = b.input<float>("x", 1000, [](size_t i) { return (float)i; });
    auto &a = b.input<float>("a", 128, [](size_t i) { return (float)i; });
    auto &o = b.output<float>("o", 1000);
    auto copy = [&](std::function<void()> f) { return kernel_case { 4, 256, 0, {}, f, o.p, 4000 }; };
    auto shared = [&](std::function<void()> f) { return kernel_case { 1, 256, 1024, {}, f, o.p, 1024 }; };
    auto align = [&](std::function<void()> f) { return kernel_case { 1, 31, 0, {}, f, o.p, 124 }; };
    right(b, "copy", copy([&] { self_copy<0>(x.p, o.p, 1000); }));
    right(b, "through shared memory", shared([&] { self_shared<0>(x.p, o.p); }));
    right(b, "aligned loads", align([&] { self_align<0>(a.p, o.p); }));
    const int any = NAMED | SANITIZER;
    fault(b, "read one past the end", copy([&] { self_copy<1>(x.p, o.p, 1000); }), { NAMED, any, NO, "0 bytes past the end of `x`" });
    fault(b, "write one past the end", copy([&] { self_copy<2>(x.p, o.p, 1000); }), { NAMED, any, NO, "0 bytes past the end of `o`" });
    fault(b, "past dynamic shared memory", shared([&] { self_shared<1>(x.p, o.p); }),
          { NAMED, any, NO, "past the end of `dynamic shared memory`" });
    fault(b, "past static shared memory", shared([&] { self_shared<2>(x.p, o.p); }), { NO, SANITIZER, NO, "" });
    fault(b, "16-byte load at a 4-byte address", align([&] { self_align<1>(a.p, o.p); }), { NAMED, NAMED, NO, "not 16-byte aligned" });
}

static void agreement(emu::bench &b) {
    auto &x = b.input<float>("x", 256, [](size_t i) { return (float)i; });
    auto &o = b.output<float>("o", 256);
    auto block = [&](std::function<void()> f) { return kernel_case { 1, 256, 512, {}, f, o.p, 512 }; };
    auto warp = [&](std::function<void()> f) { return kernel_case { 1, 32, 0, {}, f, o.p, 128 }; };
    auto bytes = [&](kernel_case k, const char *text) { fault(b, text, k, { NAMED, NAMED, NO, text }); };
    right(b, "barrier", block([&] { self_barrier<0>(o.p); }));
    right(b, "shuffle", warp([&] { self_shuffle<0>(x.p, o.p); }));
    right(b, "named barrier", block([&] { self_named<0>(x.p, o.p); }));
    bytes(block([&] { self_barrier<1>(o.p); }), "128 threads have returned");
    bytes(block([&] { self_barrier<2>(o.p); }), "barrier divergence");
    bytes(warp([&] { self_shuffle<1>(x.p, o.p); }), "waits for the other lanes");
    bytes(warp([&] { self_shuffle<2>(x.p, o.p); }), "outside its mask");
    bytes(warp([&] { self_shuffle<3>(x.p, o.p); }), "lacks the calling lane");
    bytes(block([&] { self_named<1>(x.p, o.p); }), "256 threads expected");
    auto word = [&](std::function<void()> f) { return kernel_case { 1, 64, 0, {}, f, o.p, 260 }; };
    right(b, "word", word([&] { self_word<0>(x.p, o.p, reinterpret_cast<uint32_t *>(o.p + 64)); }));
    bytes(word([&] { self_word<1>(x.p, o.p, reinterpret_cast<uint32_t *>(o.p + 64)); }), "a word that no other thread");
    fault(b, "word not waited for", word([&] { self_word<2>(x.p, o.p, reinterpret_cast<uint32_t *>(o.p + 64)); }),
          { BYTES, BYTES, RACE, "" });
    fault(b, "named barrier not waited for", block([&] { self_named<2>(x.p, o.p); }), { BYTES, BYTES, RACE, "" });
}

static void bulk(emu::bench &b) {
    auto &x = b.input<uint32_t>("x", 5 * SELF_TILE / 4, [](size_t i) { return (uint32_t)(i * 2654435761u); });
    auto &o = b.output<uint32_t>("o", 128);
    auto ring = [&](std::function<void()> f) { return kernel_case { 1, 160, SELF_STAGES * SELF_TILE, aligned(), f, o.p, 512 }; };
    right(b, "ring", ring([&] { self_ring<0>(x.p, o.p, 5); }));
    fault(b, "full stage not waited for", ring([&] { self_ring<1>(x.p, o.p, 5); }),
          { BYTES | NAMED, BYTES | NAMED, RACE | NAMED, "waits for an mbarrier" });
    fault(b, "empty stage not waited for", ring([&] { self_ring<2>(x.p, o.p, 5); }),
          { BYTES | NAMED, BYTES | NAMED, RACE | NAMED, "one arrival too many" });
    fault(b, "stage never freed", ring([&] { self_ring<3>(x.p, o.p, 5); }), { NAMED, NAMED, NO, "waits for an mbarrier" });
    fault(b, "too few bytes announced", ring([&] { self_ring<4>(x.p, o.p, 5); }), { NAMED, NAMED, NO, "waits for an mbarrier" });
    fault(b, "mbarrier not initialised", ring([&] { self_ring<5>(x.p, o.p, 5); }), { NAMED, NAMED, NO, "never initialised" });
    fault(b, "loads in flight at the end", ring([&] { self_ring<6>(x.p, o.p, 2); }),
          { BYTES | NAMED, BYTES | NAMED, RACE | NAMED, "in flight when the block ends" });

    auto &out = b.output<uint32_t>("out", 3 * SELF_TILE / 4);
    const uint64_t size[] = { 64, 192 }, stride[] = { 128 };
    const uint32_t box[] = { 64, 64 };
    const gdn_tensor_map map = gdn_emu_tensor_map(out.p, 2, 2, size, stride, box, 128);
    auto store = [&](std::function<void()> f) { return kernel_case { 1, 128, SELF_TILE, aligned(true), f, out.p, 3 * SELF_TILE }; };
    right(b, "tile stored by the copy engine", store([&] { self_out<0>(map, 3); }));
    fault(b, "no proxy fence before a store", store([&] { self_out<1>(map, 3); }), { NAMED, NAMED, NO, "without fence.proxy.async" });
    fault(b, "tile rewritten before its store has read it", store([&] { self_out<2>(map, 3); }),
          { BYTES | NAMED, BYTES | NAMED, RACE, "" });
    fault(b, "store never waited for", store([&] { self_out<3>(map, 1); }), { NAMED, NAMED, NO, "may still read shared memory" });
}

static void products(emu::bench &b) {
    auto &x = b.input<uint32_t>("a", SELF_TILE / 4, [&](size_t) { return gdn_pack_f16(b.uniform(-1, 1), b.uniform(-1, 1)); });
    auto &y = b.input<uint32_t>("b", SELF_TILE / 4, [&](size_t) { return gdn_pack_f16(b.uniform(-1, 1), b.uniform(-1, 1)); });
    auto &o = b.output<float>("o", 64 * 64);
    auto run = [&](std::function<void()> f, bool proxy = true) {
        return kernel_case { 1, 128, 2 * SELF_TILE, aligned(proxy), f, o.p, 64 * 64 * 4 };
    };
    right(b, "product of two tiles", run([&] { self_product<0>(x.p, y.p, o.p); }));
    fault(b, "accumulator read before the wait", run([&] { self_product<1>(x.p, y.p, o.p); }), { BYTES, BYTES, BYTES, "" });
    fault(b, "B rewritten before the wait", run([&] { self_product<2>(x.p, y.p, o.p); }, false), { BYTES, BYTES, RACE, "" });
    fault(b, "product never waited for", run([&] { self_product<3>(x.p, y.p, o.p); }), { NAMED, NAMED, NO, "product still in flight" });
    fault(b, "no fence before the first product", run([&] { self_product<4>(x.p, y.p, o.p); }),
          { NAMED, NAMED, NO, "before any gdn_wgmma_fence" });
    fault(b, "one warp leaves out a product", run([&] { self_product<5>(x.p, y.p, o.p); }),
          { NAMED, NAMED, NO, "issued different products" });
    fault(b, "tiles written without a proxy fence", run([&] { self_product<6>(x.p, y.p, o.p); }),
          { NAMED, NAMED, NO, "without fence.proxy.async" });
}

int main(int argc, char **argv) {
    emu::check c(argc, argv);
    c.test("races", races);
    c.test("bounds and alignment", bounds);
    c.test("agreement of threads", agreement);
    c.test("bulk copies and mbarriers", bulk);
    c.test("warpgroup products", products);
    return c.done();
}
