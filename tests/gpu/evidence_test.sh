#!/usr/bin/env bash
# evidence_test.sh - ./dev gpu-evidence notices a changed byte, a failed result and an unexplained skip; a file of evidence that is in
# the tree parses. It need not be of these sources. $1: the source tree; GPU_TEST: the built gpu_test.
set -euo pipefail
tree=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'evidence_test: %s\n' "$*" >&2; exit 1; }
# A failure that a run had stands in the tree as it was, for ./dev gpu-evidence --check to refuse; a broken file does not.
if [ -f "$tree/tests/gpu/evidence.json" ]; then
    rc=0
    "$GPU_TEST" --verify "$tree/tests/gpu/evidence.json" || rc=$?
    [ "$rc" = 0 ] || [ "$rc" = 4 ] || fail "the tree's file is not in order"
fi

cp -r "$tree/kernels" "$tree/plugin" "$tree/abi" "$tree/host" "$tree/dev" "$work/"
mkdir -p "$work/tests/gpu"
cd "$work"
hash=$(./dev gpu-evidence --hash)
[ ${#hash} -eq 64 ] || fail "the hash is '$hash'"
write() { # hash status reason
    cat >tests/gpu/evidence.json <<END
{
 "bench": [
  {
   "entry": "a",
   "gbps": 1.0,
   "op": "norm",
   "peers": {},
   "shape": {},
   "us_median": 1.0,
   "us_p10": 1.0,
   "us_p90": 1.0
  }
 ],
 "bf16_tflops": null,
 "copy_gbps": 1.0,
 "date": "2026-01-01T00:00:00Z",
 "device": "d",
 "driver": "1",
 "hash": "$1",
 "nvrtc": "1",
 "results": [
  {
   "figures": {
    "x": 1.0
   },
   "name": "one",
   "reason": "",
   "status": "pass"
  },
  {
   "figures": {},
   "name": "two",
   "reason": "$3",
   "status": "$2"
  }
 ],
 "schema": 1,
 "target": "hopper"
}
END
}
# $1: yes or no, for both readers of the file
expect() {
    local got=yes
    ./dev gpu-evidence --check >out 2>&1 || got=no
    [ "$got" = "$1" ] || fail "--check said $got: $(cat out)"
    [ "$(wc -l <out)" = 1 ] || fail "--check printed more than a line: $(cat out)"
    got=yes
    "$GPU_TEST" --verify tests/gpu/evidence.json >out 2>&1 || got=no
    [ "$got" = "${2:-$1}" ] || fail "--verify said $got: $(cat out)"
}
write "$hash" pass ""
expect yes
write "$hash" skip "no such tool"
expect yes
write "$hash" skip ""
expect no
write "$hash" fail "it differs"
expect no
write "$hash" pass ""
file=$(find kernels -name '*.cu' | LC_ALL=C sort | head -1)
cp "$file" kept
printf ' ' >>"$file"
expect no yes # the form is right, the sources are others
cp kept "$file"
expect yes
mv "$file" "$file.other"
expect no yes
printf 'evidence is checked\n'
