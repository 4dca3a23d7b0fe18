"""libgdn by ctypes: open a target, plan, launch; the rule's operations on PyTorch tensors."""
import ctypes as C
import os

import torch

from gdn_abi import (BF16, BF16_STATE, F32, LINEAR, OFFSETS_I32, OP_DECODE, OP_FOLD, OP_PREFILL, OP_VERIFY, OP_WOA, POOL, U32, U64, Args,
                     Options, Route, RuleShape, Setting, Text)


class Plan:
    """A plan, its entry's name and its workspace. launch(pointers, counts): a tensor, an address, or 0."""

    def __init__(self, gdn, shape):
        self.gdn, self.handle = gdn, C.c_void_p()
        gdn.check(gdn.lib.gdn_plan_make(gdn.handle, C.byref(shape), None, C.byref(self.handle), C.byref(gdn.err)))
        route = Route(struct_size=C.sizeof(Route))
        gdn.lib.gdn_explain(self.handle, 0, None, C.byref(route))
        self.entry = route.entry.decode()
        self.workspace = torch.empty(max(route.workspace_bytes, 16), dtype=torch.uint8, device="cuda")

    def launch(self, pointers, counts):
        ptr = (U64 * len(pointers))(*[p.data_ptr() if hasattr(p, "data_ptr") else p for p in pointers])
        u32 = (U32 * len(counts))(*counts)
        args = Args(C.sizeof(Args), len(ptr), len(u32), 0, torch.cuda.current_stream().cuda_stream, ptr, u32)
        status = self.gdn.lib.gdn_launch(self.handle, C.byref(args))
        if status:
            raise RuntimeError(f"launch: status {status}")


class Gdn:
    """An open target; levers by name."""

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

    def plan(self, op, nk, nv, **fields):
        fields = {"act_type": BF16, "state_type": F32, "gate_form": LINEAR, **fields}
        return Plan(self, RuleShape(struct_size=C.sizeof(RuleShape), op=op, nk=nk, nv=nv, k_dim=128, v_dim=128, **fields))


def prefill(gdn, case, data):
    """call(i, T=all, state=None) on input set i -> output, states; the states are written in place."""
    plan = gdn.plan(OP_PREFILL, case.nk, case.nv, max_tokens=case.T, max_batch=case.N, offsets=OFFSETS_I32 if case.N > 1 else 0)
    out = torch.empty(case.T, case.nv, 128, dtype=torch.bfloat16, device="cuda")
    states = [d.h0.clone() for d in data]
    cu = torch.arange(case.N + 1, dtype=torch.int32, device="cuda") * (case.T // case.N) if case.N > 1 else 0

    def call(i, T=None, state=None):
        d, s = data[i], states[i] if state is None else state
        plan.launch([d.q, d.k, d.v, d.decay, d.beta, s, out, cu, 0, 0, 0, 0, 0, plan.workspace], [case.N, T or case.T // case.N])
        return out, s

    return plan.entry, call


def decode(gdn, case, d, bf16_state=False):
    """call(i) on state set i -> output, states."""
    extra = {"flags": BF16_STATE, "state_type": BF16} if bf16_state else {}
    plan = gdn.plan(OP_DECODE, case.nk, case.nv, max_batch=case.B, **extra)
    out = torch.empty(case.B, case.nv, 128, dtype=torch.bfloat16, device="cuda")
    states = [s.bfloat16() for s in d.states] if bf16_state else d.states

    def call(i):
        plan.launch([states[i], d.q, d.k, d.v, d.decay, d.beta, out, 0, 0, 0, 0, plan.workspace], [case.B])
        return out, states[i]

    return plan.entry, call


def verify(gdn, case, d, rows, kept):
    """call(i): `rows` rows a sequence, the state after the last one in place; kept: those after the others as well."""
    plan = gdn.plan(OP_VERIFY, case.nk, case.nv, max_batch=case.B, max_rows=rows, state_addr=POOL)
    out = torch.empty(case.B * rows, case.nv, 128, dtype=torch.bfloat16, device="cuda")
    hi = torch.empty(case.B * (rows - 1), case.nv, 128, 128, device="cuda") if kept else 0
    slots = torch.arange(case.B, dtype=torch.int32, device="cuda")

    def call(i):
        plan.launch([d.states[i], d.q, d.k, d.v, d.decay, d.beta, out, hi, 0, 0, slots, 0, 0, plan.workspace, 0, 0], [rows, case.B])
        return out, d.states[i]

    return plan.entry, call


def write_on_accept(gdn, case, d, rows, fold):
    """call(i): the verify that stashes; fold: the one that applies all rows behind it, too. gdn has the lever gdn_woa."""
    fields = {"max_batch": case.B, "max_rows": rows, "state_addr": POOL, "stash_seqs": case.B}
    woa, folds = gdn.plan(OP_WOA, case.nk, case.nv, **fields), gdn.plan(OP_FOLD, case.nk, case.nv, **fields)
    out = torch.empty(case.B * rows, case.nv, 128, dtype=torch.bfloat16, device="cuda")
    slots, flag = torch.arange(case.B, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    stash = [torch.empty(case.B, 4 * (case.nv * 129 + case.nk * 128), device="cuda") for _ in d.states]
    taken = torch.full((case.B,), rows, dtype=torch.int32, device="cuda")

    def call(i):
        woa.launch([d.states[i], d.q, d.k, d.v, d.decay, d.beta, out, stash[i], flag, slots, 0, woa.workspace, 0, 0], [rows, case.B])
        if fold:
            folds.launch([d.states[i], stash[i], taken, 0, flag, slots, 0, 0, 0], [rows, case.B])
        return out, d.states[i]

    return woa.entry, call
