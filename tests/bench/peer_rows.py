"""One library's rows, in a process of its own; peers.py starts it: LIBRARY SETS small|full TARGET FILE. A row is a line of JSON.

`ready` is printed when the library is loaded; a line on the standard input lets the work begin."""
import importlib
import json
import sys

import torch

import gdn_calls
import peer_calls
import sweep
from bench_inputs import (KINDS, Case, copy_bandwidth, error, kernel_times, prefill_inputs, reference, step_inputs, timed)

HEADS = ((16, 48), (16, 32))
ROWS = 4
FULL = [Case(16, 48, T) for T in (256, 1168, 1193, 2048, 4593, 8192, 32768)] + [Case(16, 48, 8192, 8), Case(2, 8, 8192), Case(16, 32, 8192)]
SMALL = [Case(16, 48, T) for T in (256, 1168, 8192)] + [Case(16, 48, 8192, 8), Case(2, 8, 8192)]
LONG = 20000  # tokens: only the fast routes of the target are timed beyond
ROUTES = {"fast": {"gdn_prefill_fast": "true"}, "fast, W and N": {"gdn_prefill_fast": "true", "gdn_prefill_fast_wn": "true"},
          "tensor cores": {"gdn_prefill_fast": "false", "gdn_prefill_tc": "true"},
          "scalar": {"gdn_prefill_fast": "false", "gdn_prefill_tc": "false"}}


class Work:
    def __init__(self, library, small, target, path):
        self.library, self.small, self.target, self.file, self.open = library, small, target, open(path, "w"), {}

    def row(self, **values):
        self.file.write(json.dumps({"library": self.library, **values}) + "\n")
        self.file.flush()

    def tried(self, what, case, f):
        """f(), whose failure is a row as well."""
        try:
            with torch.no_grad():
                return f()
        except Exception as why:  # a library's own compiler, checks or launch
            self.row(set=what, case=str(case), left_out=f"{type(why).__name__}: {str(why)[-300:]}")
            return None

    def gdn(self, **levers):
        key = tuple(sorted(levers.items()))
        if key not in self.open:
            self.open[key] = gdn_calls.Gdn(self.target, **levers)
        return self.open[key]

    # ---- calls of this library: {name: call} ----
    def prefills(self, case, data):
        if self.library == "fla":
            return peer_calls.fla_prefill(case, data)
        if self.library == "flashqla":
            return peer_calls.flashqla_prefill(case, data)
        if self.library == "flashinfer":
            return peer_calls.flashinfer_prefill(case, data)
        calls = {}
        for route, levers in ROUTES.items():
            fast = route.startswith("fast")
            if fast or case.T < LONG:
                entry, call = gdn_calls.prefill(self.gdn(**levers), case, data)
                if not fast or ("fast_wn" if "W" in route else "fast") in entry:
                    calls[f"gdn {route}"] = call
        return calls

    def decodes(self, case, r):
        if self.library == "fla":
            return peer_calls.fla_steps(case, r, 1)
        if self.library == "flashinfer":
            return peer_calls.flashinfer_decode(case, r)
        return {} if self.library != "gdn" else {"gdn": gdn_calls.decode(self.gdn(), case, r)[1],
                                                 "gdn, bf16 state": gdn_calls.decode(self.gdn(), case, r, bf16_state=True)[1]}

    def verifies(self, case, r):
        if self.library == "fla":
            return peer_calls.fla_steps(case, r, ROWS)
        if self.library == "flashinfer":
            return peer_calls.flashinfer_verify(case, r, ROWS)
        if self.library != "gdn":
            return {}
        woa = self.gdn(gdn_woa="1")
        return {"gdn verify, last state": gdn_calls.verify(self.gdn(), case, r, ROWS, False)[1],
                "gdn verify, all states": gdn_calls.verify(self.gdn(), case, r, ROWS, True)[1],
                "gdn write-on-accept (outputs and a stash)": gdn_calls.write_on_accept(woa, case, r, ROWS, False)[1],
                "gdn write-on-accept and fold of all": gdn_calls.write_on_accept(woa, case, r, ROWS, True)[1]}

    # ---- sets ----
    def prefill(self):
        checked = {Case(16, 48, T) for T in (1168, 4593, 32768)} if not self.small else {Case(16, 48, 1168), Case(16, 48, 8192, 8)}
        for case in SMALL if self.small else FULL:
            def one(case=case):
                data = prefill_inputs(case)
                want = reference(case, data[0], data[0].h0) if case in checked else None
                for name, call in self.prefills(case, data).items():
                    self.tried("prefill", case, lambda n=name, c=call: self.prefill_row(case, data, want, n, c))
            self.tried("prefill", case, one)
            torch.cuda.empty_cache()

    def prefill_row(self, case, data, want, name, call):
        o, S = call(0)
        torch.cuda.synchronize()
        errors = {"output": error(o, want[0]), "state": error(S, want[1])} if want else {}
        us = timed(call, len(data), max(4, min(20, 40000 // case.T)))
        self.row(set="prefill", case=str(case), name=name, us=us, **errors)

    def kernels(self):
        """The time of each kernel of a prefill, by the profiler."""
        for case in SMALL if self.small else FULL:
            def one(case=case):
                for name, call in self.prefills(case, prefill_inputs(case, sets=1)).items():
                    call(0)
                    self.row(set="kernels", case=str(case), note=f"{case} {name}: {kernel_times(lambda: call(0))}")
            self.tried("kernels", case, one)

    def accuracy(self):
        case = Case(16, 48, 1168)
        for kind in KINDS:
            def one(kind=kind):
                data = prefill_inputs(case, kind, 1)
                want = reference(case, data[0], data[0].h0)
                for name, call in self.prefills(case, data).items():
                    def row(name=name, call=call):
                        o, S = call(0)
                        self.row(set="accuracy", case=f"{kind}, T={case.T}", name=name, output=error(o, want[0]), state=error(S, want[1]))
                    self.tried("accuracy", kind, row)
            self.tried("accuracy", kind, one)

    def steps(self, what, rows, calls_of):
        copy = copy_bandwidth() * 1e6
        self.row(set=what, note=f"{what}: copy {copy / 1e6:.2f} TB/s")
        for nk, nv in HEADS[:1] if self.small else HEADS:
            for B in (1, 16) if self.small else (1, 16, 64, 256):
                case = Case(nk, nv, B=B)

                def one(case=case):
                    r = step_inputs(case, rows)
                    for name in list(calls_of(case, r)):
                        self.tried(what, case, lambda: self.step_row(what, case, rows, name, r, calls_of, copy))
                self.tried(what, case, one)
                torch.cuda.empty_cache()

    def step_row(self, what, case, rows, name, r, calls_of, copy):
        call, errors = calls_of(case, r)[name], {}
        if case.B == 16:
            before = r.states[0].clone()
            o, S = call(0)
            torch.cuda.synchronize()
            want = reference(case, r, before, rows)
            errors["output"] = error(o, want[0])
            if "outputs" not in name:
                errors["state"] = error(S, want[1])
            r.states[0].copy_(before)
        us = timed(call, len(r.states), 48)
        floor = case.B * (2 * case.nv * 65536 + (2 * case.nk + 2 * case.nv) * 256 + 8 * case.nv) / copy
        share = {"share": floor / us} if what == "decode" and "bf16" not in name else {}
        self.row(set=what, case=str(case), name=name, us=us, **errors, **share)

    def run(self, sets):
        for what in sets:
            if what == "sweep":
                if self.library == "gdn":
                    self.tried(what, "", lambda: sweep.run(self.gdn(**ROUTES["fast"]), self.row))
            elif what in ("decode", "verify"):
                rows, calls_of = (1, self.decodes) if what == "decode" else (ROWS, self.verifies)
                if self.library != "flashqla":
                    self.tried(what, "", lambda: self.steps(what, rows, calls_of))
            else:
                getattr(self, what)()

    def load(self):
        """What costs no time on the GPU."""
        torch.zeros(1, device="cuda")
        if self.library == "gdn":
            for levers in (*ROUTES.values(), {}, {"gdn_woa": "1"}):
                self.gdn(**levers)
        else:
            importlib.import_module({"fla": "fla.ops.gated_delta_rule", "flashqla": "flash_qla", "flashinfer": "flashinfer"}[self.library])


def main():
    library, sets, cases, target, path = sys.argv[1:6]
    sets = sets.split(",")
    work = Work(library, cases == "small", target, path)
    work.load()
    print("ready", flush=True)
    if not sys.stdin.readline():
        return 1
    work.row(note=f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    work.run(sets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
