#!/bin/sh
# exports.sh BUILD_DIR FIXTURES_DIR: a plugin exports gdn_plugin_query and nothing else; libgdn only gdn_ names of gdn.h.
set -u
build=$1 fixtures=$2 failed=0
exported() { nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | grep -v '^__\(asan\|ubsan\|tsan\|odr\|sancov\)' | sort; }
one() { [ "$(exported "$1")" = gdn_plugin_query ]; }
n=0
for f in "$build"/lib/gdn/*/libgdn_*.so; do
    [ -e "$f" ] || continue
    n=$((n + 1))
    one "$f" || { echo "$f exports:"; exported "$f"; failed=1; }
done
[ $n -gt 0 ] || { echo "no plugin in $build/lib/gdn"; failed=1; }
one "$fixtures/libgdn_good.so" || { echo "libgdn_good.so exports:"; exported "$fixtures/libgdn_good.so"; failed=1; }
one "$fixtures/libgdn_no_symbol.so" && { echo "the control passed: this test sees nothing"; failed=1; }
bad=$(exported "$build/lib/libgdn.so" | grep -v '^gdn_[a-z]')
[ -z "$bad" ] || { echo "libgdn.so exports: $bad"; failed=1; }
exported "$build/lib/libgdn.so" | grep -q '^gdn_open$' || { echo "libgdn.so does not export gdn_open"; failed=1; }
exit $failed
