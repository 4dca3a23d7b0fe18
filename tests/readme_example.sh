#!/bin/sh
# Compiles and runs the C program of README.md against the built library: usage: readme_example.sh CC README ABI HOST LIBDIR
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$2" >"$dir/example.c"
"$1" -std=c11 -Wall -Wextra -Werror -Wno-missing-field-initializers -I"$3" -I"$4" "$dir/example.c" -o "$dir/example" -L"$5" -lgdn -Wl,-rpath,"$5"
"$dir/example" >"$dir/out"
cat "$dir/out"
# v = 1 and beta = 0.5 on an empty state: state = beta k v, out = state q / sqrt(128), with q and k normalised.
grep -q '^gdn_cpu_decode_[a-z0-9]*: out\[0\] = 0.0442, state\[0\] = 0.5000$' "$dir/out"
