#!/usr/bin/env python3
"""A GPU target beside other libraries: times and errors on the same inputs in the same run.

    python3 tests/bench/peers.py [--target hopper] [--sets prefill,kernels,accuracy,decode,verify,sweep]
                                 [--libraries gdn,flashqla,flashinfer,fla] [--cases small|full] [--out DIR]

Needs a GPU, PyTorch, and a built libgdn (GDN_LIBRARY names libgdn.so; GDN_PLUGIN_PATH, GDN_CONF_DIR and the rest apply).
Other libraries: flash-linear-attention (fla-core), FlashQLA (flash-qla), FlashInfer (flashinfer-python). Each runs in a process of its own, one
after the other once all are loaded, with a time limit (--limit), so that one that fails or hangs costs no other's rows. DIR gets rows.json
and a log of each process.

Errors are relative RMS against an f64 token recurrence. Times: CUDA graph of several calls over rotated inputs, median of 21 replays,
microseconds a call.
"""
import argparse
import json
import os
import select
import subprocess
import sys
import time

LIBRARIES = ("gdn", "flashqla", "flashinfer", "fla")


def start(library, a):
    """A child: prints `ready` when it is loaded, waits for a line, works, and has written its rows when it ends."""
    command = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_rows.py"), library, a.sets, a.cases, a.target,
               os.path.join(a.out, f"rows_{library}.json")]
    site = os.environ.get(f"PEERS_SITE_{library.upper()}")  # a folder of packages for this library alone
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH")])), PYTHONUNBUFFERED="1")
    with open(os.path.join(a.out, f"log_{library}.txt"), "w") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=env)


def is_ready(child, until):
    """Waits for the line `ready`; false when the child has ended or the time is over."""
    while select.select([child.stdout], [], [], max(0, until - time.time()))[0]:
        line = child.stdout.readline()
        if line in ("ready\n", ""):
            return line != ""
    return False


def run(a):
    t0 = time.time()
    children = {n: start(n, a) for n in a.libraries.split(",")}
    loaded = {n: is_ready(c, t0 + a.limit) for n, c in children.items()}
    took = {"loading": round(time.time() - t0, 1)}
    for name, child in children.items():
        begun = time.time()
        if loaded[name]:
            try:
                child.communicate("go\n", timeout=a.limit)
            except subprocess.TimeoutExpired:
                print(f"{name}: stopped after {a.limit} s")
        if child.poll() is None:
            child.kill()
        child.wait()
        took[name] = round(time.time() - begun, 1)
    return took


def rows_of(a):
    rows = []
    for name in a.libraries.split(","):
        path, found = os.path.join(a.out, f"rows_{name}.json"), []
        if os.path.exists(path):
            with open(path) as f:
                found = [json.loads(line) for line in f]
        rows += found or [{"library": name, "left_out": tail(os.path.join(a.out, f"log_{name}.txt"))}]
    return rows


def tail(path):
    with open(path) as f:
        lines = f.read().strip().splitlines()
    return lines[-1][:300] if lines else "no word from it"


def number(x, form):
    return format(x, form) if x is not None else ""


def show(rows):
    order = list(dict.fromkeys((r["set"], r["case"]) for r in rows if "us" in r or "output" in r))
    for key in order:
        for r in rows:
            if (r.get("set"), r.get("case")) == key and ("us" in r or "output" in r):
                print(f"{r['set']:9} {r['case']:44} {number(r.get('us'), '9.2f'):>9} {number(r.get('output'), '.2e'):>9} "
                      f"{number(r.get('state'), '.2e'):>9} {number(r.get('share'), '4.0%'):>5} {r['name']}")
    for r in rows:
        if "note" in r:
            print(f"{r['library']}: {r['note']}")
        if "left_out" in r:
            print(f"{r['library']} {r.get('set', '')} {r.get('case', '')} is left out: {r['left_out']}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", default="hopper")
    p.add_argument("--sets", default="prefill,accuracy,decode,verify")
    p.add_argument("--libraries", default=",".join(LIBRARIES))
    p.add_argument("--cases", default="full", choices=("small", "full"))
    p.add_argument("--out", default=".")
    p.add_argument("--limit", type=float, default=120, help="seconds a process may take to load, and again to work")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    took = run(a)
    rows = rows_of(a)
    with open(os.path.join(a.out, "rows.json"), "w") as f:
        json.dump({"rows": rows, "seconds": took}, f, indent=1)
    print("columns: set, case, us, error of the output, of the state, share of the copy, what")
    show(rows)
    print("seconds:", took)


if __name__ == "__main__":
    sys.exit(main())
