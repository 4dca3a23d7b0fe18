#!/usr/bin/env python3
"""Errors and times of a GPU target beside other libraries, on the same random inputs in the same run.

    python3 tests/bench/peers.py [--target hopper] [--op prefill,decode] [--tokens 256,1193,4593,8192,32768] [--heads 16/48]

Needs a GPU, PyTorch, and a built libgdn (GDN_LIBRARY names libgdn.so; the usual GDN_PLUGIN_PATH and GDN_CONF_DIR apply). A peer that
cannot be imported is left out by name: flash-linear-attention (fla-core), FlashQLA (flash-qla), FlashInfer (flashinfer-python).
Errors are relative RMS against an f64 token recurrence.
Times: CUDA graph of several calls over rotated inputs, median of 21 replays, microseconds a call.
"""
import argparse
import ctypes as C
import functools
import math
import os
import sys

import torch

U32, U64 = C.c_uint32, C.c_uint64
OP_PREFILL, OP_DECODE = 6, 7


class Text(C.Structure):
    _fields_ = [("buf", C.c_char_p), ("cap", U64), ("len", U64)]


class Setting(C.Structure):
    _fields_ = [("key", C.c_char_p), ("value", C.c_char_p)]


class Options(C.Structure):
    _fields_ = [("struct_size", U32), ("ordinal", C.c_int32), ("target", C.c_char_p), ("plugin_path", C.c_char_p), ("conf", C.c_char_p),
                ("log", C.c_void_p), ("log_user", C.c_void_p), ("settings", C.POINTER(Setting)), ("n_settings", U32), ("log_level", U32),
                ("flags", U32), ("pad_", U32)]


class RuleShape(C.Structure):
    _fields_ = ([(n, U32) for n in ("struct_size", "op", "flags", "act_type", "nk", "nv", "k_dim", "v_dim", "qk_stride", "v_stride",
                                    "gb_stride", "gate_form", "head_map", "state_layout", "state_addr", "state_type", "offsets", "max_tokens",
                                    "max_batch", "max_rows", "ckpt_every", "hi_capacity", "slab_entries", "stash_seqs", "layers")] +
                [("scale", C.c_float), ("state_stride", U64), ("num_slots", U64), ("stash_stride", U64), ("max_workspace", U64)])


class Route(C.Structure):
    _fields_ = [("struct_size", U32), ("chosen", U32), ("entry", C.c_char_p), ("guard", C.c_char_p), ("lever", C.c_char_p),
                ("lever_where", C.c_char_p), ("lever_source", U32), ("smem_bytes", U32), ("grid", U32 * 3), ("block", U32 * 3),
                ("workspace_bytes", U64)]


class Args(C.Structure):
    _fields_ = [("struct_size", U32), ("n_ptr", U32), ("n_u32", U32), ("flags", U32), ("stream", C.c_void_p), ("ptr", C.POINTER(U64)),
                ("u32", C.POINTER(U32))]


class Gdn:
    """An open target."""

    def __init__(self, target, **levers):
        self.lib = C.CDLL(os.environ.get("GDN_LIBRARY", "libgdn.so.0"))
        self.text = C.create_string_buffer(1024)
        self.err = Text(C.cast(self.text, C.c_char_p), 1024, 0)
        settings = (Setting * len(levers))(*[Setting(k.encode(), v.encode()) for k, v in levers.items()])
        opt = Options(struct_size=C.sizeof(Options), target=target.encode(), settings=settings, n_settings=len(levers))
        self.handle = C.c_void_p()
        self.check(self.lib.gdn_open(C.byref(opt), C.byref(self.handle), C.byref(self.err)))

    def check(self, status):
        if status:
            raise RuntimeError(f"status {status}: {self.text.value.decode()}")

    def plan(self, **fields):
        shape = RuleShape(struct_size=C.sizeof(RuleShape), act_type=1, state_type=2, gate_form=1, **fields)
        plan = C.c_void_p()
        self.check(self.lib.gdn_plan_make(self.handle, C.byref(shape), None, C.byref(plan), C.byref(self.err)))
        route = Route(struct_size=C.sizeof(Route))
        self.lib.gdn_explain(plan, 0, None, C.byref(route))
        return plan, route.entry.decode(), route.workspace_bytes

    def launch(self, plan, pointers, counts):
        ptr = (U64 * len(pointers))(*[p.data_ptr() if hasattr(p, "data_ptr") else p for p in pointers])
        u32 = (U32 * len(counts))(*counts)
        args = Args(C.sizeof(Args), len(ptr), len(u32), 0, torch.cuda.current_stream().cuda_stream, ptr, u32)
        status = self.lib.gdn_launch(plan, C.byref(args))
        if status:
            raise RuntimeError(f"launch: status {status}")


def timed(call, sets, calls):
    """us a call; call(i) uses input set i."""
    for i in range(2):
        call(i % sets)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i % sets)
    graph.replay()
    times = []
    for _ in range(21):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) * 1000 / calls)
    return sorted(times)[len(times) // 2]


def inputs(T, nk, nv, sets):
    D, out = 128, []
    for _ in range(sets):
        q, k = (torch.nn.functional.normalize(torch.randn(T, nk, D, device="cuda"), dim=-1).bfloat16() for _ in range(2))
        v = (torch.rand(T, nv, D, device="cuda") - 0.5).bfloat16()
        gb = torch.empty(T, 2, nv, device="cuda")
        gb[:, 0].uniform_(0.80, 0.999)
        gb[:, 1].uniform_(0, 1)
        out.append((q, k, v, gb, (torch.rand(nv, D, D, device="cuda") - 0.5) * 0.2))
    return out


def recurrence(q, k, v, gb, h0):
    r = v.shape[1] // q.shape[1]
    q, k = (x.double().repeat_interleave(r, 1) for x in (q, k))
    v, a, beta, S = v.double(), gb[:, 0].double(), gb[:, 1].double(), h0.double().clone()
    o = torch.empty_like(v)
    for t in range(v.shape[0]):
        S *= a[t][:, None, None]
        u = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", S, k[t]))
        S += k[t][:, :, None] * u[:, None, :]
        o[t] = torch.einsum("hkv,hk->hv", S, q[t])
    return o / math.sqrt(v.shape[2]), S


def error(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


def copy_bandwidth():
    """TB/s, read and write: the better of memcpy and an elementwise kernel. Outside a graph, where a copy may go to a copy engine."""
    a, b = (torch.rand(1 << 30, device="cuda") for _ in range(2))
    times = []
    for copy in [lambda: b.copy_(a), lambda: torch.mul(a, 2.0, out=b)] * 12:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        copy()
        copy()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / 2)
    return 2 * 4 * (1 << 30) / min(times) / 1e9


@functools.cache
def importable(name, module, attribute):
    """What a peer offers, or None and a line that says why not."""
    try:
        import importlib
        return getattr(importlib.import_module(module), attribute)
    except Exception as why:  # whatever an import can raise
        print(f"{name} is left out: {why}")
        return None


def prefill_peers(data):
    """{name: call(i) -> output [T, nv, 128], state [nv, 128, 128]} over the given inputs, of what can be imported."""
    logs = [(d[3][:, 0].log()[None], d[3][:, 1][None].contiguous()) for d in data]
    lin = [(d[3][:, 0].contiguous(), d[3][:, 1].contiguous()) for d in data]
    ends = torch.tensor([0, data[0][0].shape[0]], dtype=torch.int64, device="cuda")

    def batched(f):
        def call(i):
            q, k, v, _, h0 = data[i]
            o, S = f(q[None], k[None], v[None], logs[i][0], logs[i][1], initial_state=h0[None], output_final_state=True)
            return o[0], S[0]
        return call

    def packed(f):
        def call(i):
            q, k, v, _, h0 = data[i]
            o, S = f(q, k, v, lin[i][0], lin[i][1], None, h0[None], True, ends)
            return o, S[0]
        return call

    found = {"flash-linear-attention": (importable("flash-linear-attention", "fla.ops.gated_delta_rule", "chunk_gated_delta_rule"), batched),
             "FlashQLA": (importable("FlashQLA", "flash_qla", "chunk_gated_delta_rule"), batched),
             "FlashInfer": (importable("FlashInfer", "flashinfer.gdn_prefill", "chunk_gated_delta_rule"), packed)}
    return {name: wrap(f) for name, (f, wrap) in found.items() if f}


def kernel_times(call, calls=5):
    """us a call of each kernel, by the profiler."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for _ in range(calls):
            call(0)
        torch.cuda.synchronize()
    return [(e.key[:60], e.device_time_total / calls) for e in p.key_averages() if e.device_time_total]


def prefill(target, tokens, nk, nv, check_up_to, kernels, peers, routes):
    scalar = {"gdn_prefill_tc": "false", "gdn_prefill_fast": "false"}
    forms = {"scalar": scalar, "scalar, not pipelined": {**scalar, "gdn_pipe": "0"}}
    if target == "hopper":
        forms["tensor cores"] = {**scalar, "gdn_prefill_tc": "true"}
        forms["fast"] = {"gdn_prefill_fast": "true"}
    for T in tokens:
        size = T * (2 * nk + nv) * 256
        sets = max(1, min(8, (200 << 20) // size))
        data, calls = inputs(T, nk, nv, sets), max(4, min(20, 40000 // T))
        want = recurrence(*data[0]) if T <= check_up_to else None
        rows = []
        for form, levers in forms.items():
            if routes and form not in routes:
                continue
            try:
                g = Gdn(target, **levers)
                plan, entry, bytes_ = g.plan(op=OP_PREFILL, nk=nk, nv=nv, k_dim=128, v_dim=128, max_tokens=T, max_batch=1)
            except RuntimeError as why:
                print(f"{form} is left out: {why}")
                continue
            if form == "fast" and "fast" not in entry:
                continue
            ws = torch.empty(max(bytes_, 1), dtype=torch.uint8, device="cuda")
            out = torch.empty(T, nv, 128, dtype=torch.bfloat16, device="cuda")
            states = [d[4].clone() for d in data]

            def call(i, g=g, plan=plan, out=out, states=states, ws=ws):
                q, k, v, gb, _ = data[i]
                g.launch(plan, [q, k, v, gb, gb.data_ptr() + 4 * nv, states[i], out, 0, 0, 0, 0, 0, 0, ws], [1, T])

            call(0)
            torch.cuda.synchronize()
            e = (error(out, want[0]), error(states[0], want[1])) if want else (None, None)
            rows.append((f"gdn {form}: {entry}", *e, timed(call, sets, calls), call))
        for name, call in (prefill_peers(data) if peers else {}).items():
            try:
                with torch.no_grad():
                    o, S = call(0)
                    e = (error(o, want[0]), error(S, want[1])) if want else (None, None)
                    rows.append((name, *e, timed(call, sets, calls), call))
            except Exception as why:  # a peer's own compiler or launch
                print(f"{name} T={T} is left out: {str(why)[:300]}")
        for name, eo, es, us, call in rows:
            err = f"output {eo:.3e} state {es:.3e}" if eo is not None else "error not taken"
            print(f"prefill {nk}/{nv} T={T:6d} {us:9.1f} us  {err}  {name}", flush=True)
            if kernels:
                print("    " + ", ".join(f"{k} {t:.1f}" for k, t in kernel_times(call)), flush=True)


def decode(target, batches, nk, nv, peers):
    peer = importable("flash-linear-attention", "fla.ops.gated_delta_rule", "fused_recurrent_gated_delta_rule") if peers else None
    bw = copy_bandwidth()
    print(f"copy bandwidth {bw:.2f} TB/s")
    for B in batches:
        sets = max(2, min(48, (1 << 31) // (B * nv * 65536)))
        q, k, v, gb, _ = inputs(B, nk, nv, 1)[0]
        states = [torch.rand(B, nv, 128, 128, device="cuda") * 0.1 for _ in range(sets)]
        floor = B * (2 * nv * 65536 + 32960) / bw / 1e6
        g = Gdn(target)
        plan, entry, bytes_ = g.plan(op=OP_DECODE, nk=nk, nv=nv, k_dim=128, v_dim=128, max_batch=B)
        ws = torch.empty(max(bytes_, 1), dtype=torch.uint8, device="cuda")
        out = torch.empty(B, nv, 128, dtype=torch.bfloat16, device="cuda")
        us = timed(lambda i: g.launch(plan, [states[i], q, k, v, gb, gb.data_ptr() + 4 * nv, out, 0, 0, 0, 0, ws], [B]), sets, 48)
        print(f"decode {nk}/{nv} B={B:4d} {us:8.2f} us  {100 * floor / us:5.1f} % of copy  gdn: {entry}", flush=True)
        if peer:
            lg = gb[:, 0].log()[:, None], gb[:, 1][:, None].contiguous()
            us = timed(lambda i: peer(q[:, None], k[:, None], v[:, None], lg[0], beta=lg[1], initial_state=states[i],
                                      output_final_state=True), sets, 48)
            print(f"decode {nk}/{nv} B={B:4d} {us:8.2f} us  {100 * floor / us:5.1f} % of copy  flash-linear-attention", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", default="hopper")
    p.add_argument("--op", default="prefill")
    p.add_argument("--tokens", default="256,1193,4593,8192,32768")
    p.add_argument("--batches", default="1,16,64,256")
    p.add_argument("--heads", default="16/48")
    p.add_argument("--check-up-to", type=int, default=8192, help="largest T for which errors are taken")
    p.add_argument("--routes", help="prefill: only these of the target's routes, by the names printed, with commas: fast,tensor cores")
    p.add_argument("--no-peers", action="store_true", help="the target alone")
    p.add_argument("--kernels", action="store_true", help="the time of each kernel below each row")
    a = p.parse_args()
    nk, nv = map(int, a.heads.split("/"))
    torch.manual_seed(1)
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    if "prefill" in a.op:
        prefill(a.target, list(map(int, a.tokens.split(","))), nk, nv, a.check_up_to, a.kernels, not a.no_peers,
                a.routes.split(",") if a.routes else None)
    if "decode" in a.op:
        decode(a.target, list(map(int, a.batches.split(","))), nk, nv, not a.no_peers)


if __name__ == "__main__":
    sys.exit(main())
