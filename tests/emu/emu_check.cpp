/* emu_check.cpp - the harness of emu_check.hpp. */
#include "emu_check.hpp"
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace emu {
bool sanitized() {
#if defined(EMU_ASAN) || defined(EMU_TSAN)
    return true;
#else
    return false;
#endif
}
static options make(order o, bool reverse, bool at_issue, unsigned char poison, unsigned seed) {
    options r;
    r.threads = o;
    r.reverse_blocks = reverse;
    r.at_issue = at_issue;
    r.poison = poison;
    r.seed = seed;
    return r;
}
const std::vector<schedule> &schedules() {
    static const std::vector<schedule> full = {
        { "ascending, copies late", make(order::ascending, false, false, 0xCB, 1) },
        { "descending, copies at issue", make(order::descending, true, true, 0x35, 1) },
        { "shuffled, copies late", make(order::shuffled, false, false, 0x7F, 2) },
        { "shuffled, copies at issue", make(order::shuffled, true, true, 0x00, 3) },
    };
    static const std::vector<schedule> two(full.begin(), full.begin() + 2);
    return sanitized() ? two : full;
}

/* Four chains over words, since all buffers of a test are hashed for each schedule: turned before the product, so that the highest bits
 * count as much as the others. */
static uint64_t hash_of(const watched &w) {
    uint64_t h[4] = { 1, 2, 3, 4 };
    const auto step = [](uint64_t from, uint64_t word) {
        const uint64_t x = from ^ word;
        return (x << 29 | x >> 35) * 0x9E3779B97F4A7C15ull;
    };
    size_t i = 0;
    for (; i + sizeof h <= w.r->bytes; i += sizeof h)
        for (unsigned j = 0; j < 4; j++) {
            uint64_t word;
            __builtin_memcpy(&word, w.r->data + i + 8 * j, 8);
            h[j] = step(h[j], word);
        }
    for (; i < w.r->bytes; i++) h[0] = step(h[0], (unsigned char)w.r->data[i]);
    return step(step(step(h[0], h[1]), h[2]), h[3]);
}
static std::vector<char> bytes_of(const watched &w) {
    return std::vector<char>(w.r->data, w.r->data + w.r->bytes);
}

uint32_t bench::bits() { /* splitmix64 */
    uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (uint32_t)(z >> 32);
}
float bench::uniform(float lo, float hi) {
    return lo + (hi - lo) * ((float)(bits() >> 8) * 0x1p-24f);
}

void bench::run(const char *what, dim3 grid, dim3 block, size_t smem, std::initializer_list<watched *> written,
                const std::function<void()> &kernel) {
    run(what, grid, block, smem, options(), written, kernel);
}
void bench::run(const char *what, dim3 grid, dim3 block, size_t smem, const options &base, std::initializer_list<watched *> written,
                const std::function<void()> &kernel) {
    auto writes = [&](const watched *w) {
        for (const watched *o : written)
            if (o == w) return true;
        return false;
    };
    for (watched *w : all) w->hash = hash_of(*w);
    for (watched *w : written) w->first = bytes_of(*w);
    bool first = true;
    for (const schedule &s : schedules()) {
        options opt = s.opt;
        opt.smem_align = base.smem_align;
        opt.check_proxy = base.check_proxy;
        for (watched *w : written) {
            if (w->poisoned)
                memset(w->r->data, 0xFF ^ opt.poison, w->r->bytes);
            else
                memcpy(w->r->data, w->first.data(), w->r->bytes);
        }
        const std::string where = std::string(what) + " (" + s.name + "): ";
        try {
            launch(grid, block, smem, opt, kernel);
        } catch (const error &e) {
            owner.failed(where + e.what());
            return;
        }
        for (watched *w : all) {
            if (!region_intact(*w->r)) owner.failed(where + "wrote round `" + w->name + "`");
            if (!writes(w) && hash_of(*w) != w->hash) owner.failed(where + "changed `" + w->name + "`, which it may only read");
        }
        for (watched *w : written) {
            if (first) {
                w->result = bytes_of(*w);
                continue;
            }
            if (!memcmp(w->result.data(), w->r->data, w->r->bytes)) continue;
            size_t i = 0;
            while (w->result[i] == w->r->data[i]) i++;
            owner.failed(where + "byte " + std::to_string(i) + " of `" + w->name +
                         "` is not that of the first schedule: a race, or a byte never written");
        }
        first = false;
        owner.checks++;
    }
}
void bench::must_fail(const char *text, dim3 grid, dim3 block, size_t smem, const options &opt, const std::function<void()> &kernel) {
    owner.checks++;
    try {
        launch(grid, block, smem, opt, kernel);
    } catch (const error &e) {
        if (!strstr(e.what(), text)) owner.failed(std::string("failed, but with: ") + e.what() + "; expected: " + text);
        return;
    }
    owner.failed(std::string("was not caught: ") + text);
}
void bench::same_bytes(watched *a, watched *b) {
    owner.checks++;
    const std::vector<char> x = bytes_of(*a);
    std::vector<char> y = bytes_of(*b);
    if (x.empty() || x.size() != y.size()) {
        owner.failed("`" + a->name + "` and `" + b->name + "` have no bytes to compare, or not as many");
        return;
    }
    for (size_t i = 0; i < x.size(); i++)
        if (x[i] != y[i]) {
            owner.failed("`" + a->name + "` and `" + b->name + "` differ, first in byte " + std::to_string(i));
            return;
        }
    y[y.size() / 2] = (char)(y[y.size() / 2] ^ 1); /* control: the last bit of one element */
    if (!memcmp(x.data(), y.data(), x.size())) owner.failed("control: a changed bit went unnoticed");
}
void bench::expect(bool ok, const char *what) {
    owner.checks++;
    if (!ok) owner.failed(what);
}

static bool within(const std::vector<double> &got, const std::vector<double> &want, double rms, double worst, double *seen, double *far) {
    double e = 0, n = 0, m = 0;
    bool finite = true;
    for (size_t i = 0; i < want.size(); i++) {
        const double d = got[i] - want[i];
        finite = finite && std::isfinite(d);
        e += d * d;
        n += want[i] * want[i];
        m = std::fmax(m, std::fabs(d));
    }
    *seen = n > 0 ? std::sqrt(e / n) : std::sqrt(e);
    *far = m;
    return finite && *seen <= rms && m <= worst;
}
double bench::close(const char *what, const std::vector<double> &got, const std::vector<double> &want, double rms, double worst) {
    owner.checks++;
    double seen = 0, far = 0;
    if (want.empty() || got.size() != want.size()) {
        owner.failed(std::string(what) + ": nothing to compare");
        return 0;
    }
    if (!within(got, want, rms, worst, &seen, &far)) {
        char t[200];
        snprintf(t, sizeof t, "%s: relative RMS %.3e (allowed %.3e), worst %.3e (allowed %.3e)", what, seen, rms, far, worst);
        owner.failed(t);
    }
    std::vector<double> off = want;
    off[off.size() / 2] += 2 * worst;
    double s, f;
    if (within(off, want, rms, worst, &s, &f)) owner.failed(std::string(what) + ": control: one wrong element went unnoticed");
    return seen;
}

check::check(int argc, char **argv) {
    for (int i = 1; i < argc; i++) only.push_back(argv[i]);
}
void check::failed(const std::string &why) {
    failures++;
    printf("  FAILED %s: %s\n", current.c_str(), why.c_str());
}
void check::test(const char *name, const std::function<void(bench &)> &body) {
    bool wanted = only.empty();
    for (const std::string &o : only) wanted = wanted || strstr(name, o.c_str());
    if (!wanted) return;
    current = name;
    tests++;
    const auto t0 = std::chrono::steady_clock::now();
    bench b(*this, 0x5DEECE66Dull + strlen(name));
    try {
        body(b);
    } catch (const std::exception &e) {
        failed(std::string("exception: ") + e.what());
    }
    printf("%-60s %6.0f ms\n", name, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t0).count());
    fflush(stdout);
}
int check::done() {
    printf("%u tests, %u runs and comparisons, %u failed%s\n", tests, checks, failures, tests ? "" : ": no test has such a name");
    return failures || !tests;
}
} // namespace emu
