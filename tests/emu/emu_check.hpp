/* emu_check.hpp - one harness for every kernel that runs on the emulator, and for every pair that must agree.
 *
 *     #include "emu_check.hpp"
 *     #include "ssm_preprocess.cu"
 *     int main(int argc, char **argv) {
 *         emu::check c(argc, argv);
 *         c.test("parent and twin, M=25", [&](emu::bench &b) {
 *             auto &x = b.input<gdn_bf16>("A", M * K, [&](size_t) { return gdn_to_bf16(b.uniform(-1, 1)); });
 *             auto &o = b.output<float>("parent", M * N), &t = b.output<float>("twin", M * N);
 *             b.run("parent", { N / 4, M }, 256, 0, { &o }, [&] { parent(x.p, o.p, M, N, K); });
 *             b.run("twin", { M }, 256, 0, { &t }, [&] { twin(x.p, t.p, M, N, K); });
 *             b.same_bytes(o, t);
 *         });
 *         return c.done();
 *     }
 *
 * run launches under every schedule (orders of threads and blocks, asynchronous work early and late, two poisons). Before each the
 * written buffers are put back: an output is poisoned (every byte must be written: bytes that keep the poison differ between
 * schedules), an inout gets its first content. After each, all other buffers of the test must be unchanged and guard bytes intact;
 * all schedules must give the same bytes. same_bytes and close each run a control that has to fail. */
#pragma once
#include "emu.hpp"
#include "emu_async.hpp"
#include "emu_memory.hpp"
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace emu {
/* A buffer as the harness sees it. */
struct watched {
    std::string name;
    region *r;
    bool poisoned; /* an output */
    std::vector<char> first, result;
    uint64_t hash;
};
template <class E> struct tensor_of : buffer<E> {
    watched w;
    tensor_of(const char *name, size_t count, bool at_start) : buffer<E>(name, count, 0xFF, at_start) {
        w.name = name;
        w.r = &this->r;
        w.poisoned = false;
    }
    operator watched *() { return &w; }
};

class check;
class bench {
  public:
    /* Random numbers of this test: the same on every machine. */
    uint32_t bits();
    float uniform(float lo, float hi);
    /* Buffers live as long as the test. An input ends at a guard page; `at_start` puts the page before it instead. */
    template <class E, class Fill> tensor_of<E> &input(const char *name, size_t n, Fill fill, bool at_start = false) {
        auto &t = make<E>(name, n, at_start);
        for (size_t i = 0; i < n; i++) t.p[i] = fill(i);
        return t;
    }
    template <class E> tensor_of<E> &output(const char *name, size_t n) {
        auto &t = make<E>(name, n, false);
        t.w.poisoned = true;
        return t;
    }
    template <class E, class Fill> tensor_of<E> &inout(const char *name, size_t n, Fill fill) { return input<E>(name, n, fill); }

    void run(const char *what, dim3 grid, dim3 block, size_t smem, std::initializer_list<watched *> written,
             const std::function<void()> &kernel);
    /* run, but with options of its own (smem_align, check_proxy); orders and poison still come from the schedules */
    void run(const char *what, dim3 grid, dim3 block, size_t smem, const options &base, std::initializer_list<watched *> written,
             const std::function<void()> &kernel);
    /* The run must fail with a message that holds `text`. */
    void must_fail(const char *text, dim3 grid, dim3 block, size_t smem, const options &opt, const std::function<void()> &kernel);

    void same_bytes(watched *a, watched *b);
    void expect(bool ok, const char *what);
    /* Relative RMS of got against want (both f64) is at most `rms`, the worst element's |got - want| at most `worst`. Control:
     * the same numbers with one element off by twice the allowance must not pass. Returns the relative RMS. */
    double close(const char *what, const std::vector<double> &got, const std::vector<double> &want, double rms, double worst);

  private:
    friend class check;
    bench(check &c, uint64_t seed) : owner(c), state(seed) {}
    template <class E> tensor_of<E> &make(const char *name, size_t n, bool at_start) {
        auto t = std::make_shared<tensor_of<E>>(name, n, at_start);
        keep.push_back(t);
        all.push_back(&t->w);
        return *t;
    }
    check &owner;
    uint64_t state;
    std::vector<std::shared_ptr<void>> keep;
    std::vector<watched *> all;
};

class check {
  public:
    check(int argc, char **argv); /* arguments: parts of the names of the tests to run; none: all */
    void test(const char *name, const std::function<void(bench &)> &body);
    int done(); /* prints the count; 0 when nothing failed */

  private:
    friend class bench;
    void failed(const std::string &why);
    std::vector<std::string> only;
    std::string current;
    unsigned tests = 0, failures = 0, checks = 0;
};

/* Shapes shrink under a sanitizer: the smallest that loops at least three times. */
bool sanitized();
template <class V> V small_or(V small, V full) {
    return sanitized() ? small : full;
}
struct schedule {
    const char *name;
    options opt;
};
const std::vector<schedule> &schedules();
} // namespace emu
