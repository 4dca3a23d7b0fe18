"""Inputs of the rule on the GPU, a token-by-token f64 recurrence to compare with, and the clock."""
import dataclasses
import math
import time

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

SEED = 1


@dataclasses.dataclass(frozen=True)
class Case:
    """Prefill: T tokens in N sequences of one length. Steps: a batch of B."""
    nk: int
    nv: int
    T: int = 1
    N: int = 1
    B: int = 0

    def __str__(self):
        return f"{self.nk}/{self.nv} " + (f"B={self.B}" if self.B else f"{self.N}x{self.T // self.N}" if self.N > 1 else f"T={self.T}")


class Rows:
    """q, k [T, nk, 128], v [T, nv, 128] in bf16; decay, beta f32 [T, nv], of one buffer [T, 2, nv]; h0 f32 [N, nv, 128 (k), 128 (v)]."""


def unit(x):
    return F.normalize(x, dim=-1)


def uniform(shape, low, high):
    return torch.empty(shape, device="cuda").uniform_(low, high)


def random_rows(case, decay=(0.80, 0.999), beta=(0.0, 1.0)):
    r, T = Rows(), case.T
    r.q, r.k = (unit(torch.randn(T, case.nk, 128, device="cuda")) for _ in range(2))
    r.v = uniform((T, case.nv, 128), -0.5, 0.5)
    r.gates = torch.stack([uniform((T, case.nv), *decay), uniform((T, case.nv), *beta)], 1)
    r.h0 = uniform((case.N, case.nv, 128, 128), -0.1, 0.1)
    return r


def decay_near_0(case):
    r = random_rows(case)
    r.gates[:, 0] = 10 ** uniform((case.T, case.nv), -12, -1)
    return r


def decay_near_1(case):
    return random_rows(case, decay=(0.9999, 1.0))


def equal_keys(case):
    r = random_rows(case, decay=(1.0, 1.0), beta=(1.0, 1.0))
    r.k = r.k[:1].expand(case.T, -1, -1).contiguous()
    return r


def beta_1(case):
    return random_rows(case, decay=(0.99, 1.0), beta=(1.0, 1.0))


def large_v(case):
    r = random_rows(case)
    r.v = r.v * 2000
    return r


def common_direction(case):
    """Queries and keys that share a direction: <k, k'> is about a half."""
    r = random_rows(case, decay=(0.9, 0.9999))
    c = unit(torch.randn(128, device="cuda"))
    r.q, r.k = (unit(x + c) for x in (r.q, r.k))
    return r


KINDS = {"random": random_rows, "decay 1e-12 to 0.1": decay_near_0, "decay 0.9999 to 1": decay_near_1,
         "equal keys, decay 1, beta 1": equal_keys, "decay 0.99 to 1, beta 1": beta_1, "v of 1000": large_v,
         "keys with a common direction": common_direction}


def finish(r, case):
    """What the kernels take, of f32 rows: bf16, and the gates' forms that libraries ask for."""
    r.q, r.k, r.v = (x.bfloat16() for x in (r.q, r.k, r.v))
    r.decay, r.beta = r.gates[:, 0], r.gates[:, 1]
    r.dense_decay, r.dense_beta = r.decay.contiguous(), r.beta.contiguous()
    r.log_decay = r.dense_decay.log()
    return r


def prefill_inputs(case, kind="random", sets=0):
    """Input sets that together do not fit in the cache; the same in every process."""
    torch.manual_seed(SEED)
    sets = sets or max(1, min(8, (200 << 20) // (case.T * (2 * case.nk + case.nv) * 256)))
    return [finish(KINDS[kind](case), case) for _ in range(sets)]


def step_inputs(case, rows):
    """`rows` tokens for each of B sequences, sequence-major; states in sets that do not fit in the cache. The gates come as a model makes
    them: decay = exp(-softplus(a)), beta = sigmoid(b), a and b in bf16."""
    torch.manual_seed(SEED)
    T = case.B * rows
    r = random_rows(dataclasses.replace(case, T=T, N=1))
    r.a, r.b = (torch.randn(T, case.nv, device="cuda") - 2).bfloat16(), torch.randn(T, case.nv, device="cuda").bfloat16()
    r.gates = torch.stack([torch.exp(-F.softplus(r.a.float())), torch.sigmoid(r.b.float())], 1)
    r.zero = torch.zeros(case.nv, device="cuda")
    sets = max(2, min(48, (1 << 31) // (case.B * case.nv * 65536)))
    r.states = [uniform((case.B, case.nv, 128, 128), -0.1, 0.1) for _ in range(sets)]
    return finish(r, case)


def recurrence(q, k, v, decay, beta, state, keep=None):
    """One sequence in f64: output [T, nv, 128], state [nv, 128, 128]; keep: a list that gets the state after each token."""
    per = v.shape[1] // q.shape[1]
    q, k = (x.double().repeat_interleave(per, 1) for x in (q, k))
    v, decay, beta, S = v.double(), decay.double(), beta.double(), state.double().clone()
    o = torch.empty_like(v)
    for t in range(v.shape[0]):
        key = k[t, :, None]  # [nv, 1, 128]
        S *= decay[t, :, None, None]
        u = beta[t, :, None, None] * (v[t, :, None] - torch.bmm(key, S))
        S.baddbmm_(key.transpose(1, 2), u)
        o[t] = torch.bmm(q[t, :, None], S)[:, 0]
        if keep is not None:
            keep.append(S.clone())
    return o / math.sqrt(v.shape[2]), S


def reference(case, r, states, rows=0):
    """Output and states of every sequence of a prefill, or of `rows` rows of each."""
    n, each = states.shape[0], rows or case.T // case.N
    cut = [slice(i * each, (i + 1) * each) for i in range(n)]
    parts = [recurrence(r.q[c], r.k[c], r.v[c], r.decay[c], r.beta[c], s) for c, s in zip(cut, states)]
    return torch.cat([o for o, _ in parts]), torch.stack([s for _, s in parts])


def error(got, want):
    """Relative RMS; infinite when a value is not finite."""
    e = ((got.double() - want).norm() / want.norm()).item()
    return e if math.isfinite(e) else math.inf


def warm(graph, seconds=0.05):
    """Replays for a while: clocks fall while inputs are made, and rise again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        graph.replay()
        torch.cuda.synchronize()


def timed(call, sets, calls, replays=21):
    """Microseconds a call, median of the replays of a graph; call(i) uses input set i."""
    for i in range(2):
        call(i % sets)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i % sets)
    warm(graph)
    times = []
    for _ in range(replays):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) * 1000 / calls)
    return sorted(times)[len(times) // 2]


def kernel_times(call, calls=5):
    """Microseconds a call of each kernel, as text."""
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    return ", ".join(f"{e.key[:60]} {e.device_time_total / calls:.1f}" for e in p.key_averages() if e.device_time_total)


def copy_bandwidth():
    """TB/s, read and write: the better of memcpy and an elementwise kernel. Outside a graph, where a copy may go to a copy engine."""
    a, b = (torch.rand(1 << 28, device="cuda") for _ in range(2))
    times = []
    for copy in [lambda: b.copy_(a), lambda: torch.mul(a, 2.0, out=b)] * 12:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        copy()
        copy()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / 2)
    return 2 * 4 * (1 << 28) / min(times) / 1e9
