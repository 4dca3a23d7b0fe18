"""The fast prefill of a target over T: every length to 300 against f64, and the time of a step in T beside the cost of one chunk."""
import torch

from bench_inputs import Case, error, prefill_inputs, recurrence, timed
import gdn_calls

CHUNK, SHORT = 64, 300
NEAR_0, NEAR_4096 = range(16, 641, 16), range(3584, 4609, 64)


def lengths(gdn, row):
    """One plan for SHORT tokens, launched with 1 to SHORT of them: the worst output and state."""
    case = Case(16, 48, SHORT)
    r = prefill_inputs(case, sets=1)[0]
    states = []
    want, _ = recurrence(r.q, r.k, r.v, r.decay, r.beta, r.h0[0], states)
    entry, call = gdn_calls.prefill(gdn, case, [r])
    worst = {"output": (0, 0), "state": (0, 0)}
    for T in range(1, SHORT + 1):
        o, S = call(0, T, r.h0.clone())
        for what, e in (("output", error(o[:T], want[:T])), ("state", error(S[0], states[T - 1]))):
            worst[what] = max(worst[what], (e, T))
    row(set="lengths", case=f"16/48 T=1 to {SHORT}, the worst", name=f"gdn fast ({entry}), at T={worst['output'][1]}, {worst['state'][1]}",
        output=worst["output"][0], state=worst["state"][0])


def steps(gdn, row, lens, planned):
    """Times of ascending lengths; the largest step beside 10 % and the cost of one chunk, which is the slope of the whole range."""
    case = Case(16, 48, max(lens))
    data = prefill_inputs(case, sets=4)
    entry, call = gdn_calls.prefill(gdn, case, data)
    us = []
    for T in lens:
        if planned:
            entry, call = gdn_calls.prefill(gdn, Case(16, 48, T), data)
        us.append(timed(lambda i: call(i, T), len(data), 20, 15))
    chunk = (us[-1] - us[0]) / ((lens[-1] - lens[0]) / CHUNK)
    over = [(b - a - 0.1 * a - chunk, T, b - a) for a, b, T in zip(us, us[1:], lens[1:])]
    worst, at, step = max(over)
    how = "a plan for each T" if planned else f"one plan for {max(lens)}"
    row(set="steps", case=f"16/48 T={lens[0]} to {lens[-1]} by {lens[1] - lens[0]}, {how}", lengths=list(lens), times=us,
        note=f"steps in T, {how}: chunk {chunk:.2f} us; largest beyond 10 % and a chunk: {worst:+.2f} us at T={at} (step {step:.2f}), "
             f"which starts from {us[0]:.1f} us and ends with {us[-1]:.1f}")


def run(gdn, row):
    lengths(gdn, row)
    for lens in (NEAR_0, NEAR_4096):
        for planned in (True, False):
            steps(gdn, row, lens, planned)
    torch.cuda.empty_cache()
