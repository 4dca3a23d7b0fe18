#!/bin/sh
# install.sh CMAKE BUILD_DIR: an installed tree that was moved finds its library, plugins and settings from any folder (B205, B211).
set -u
cmake=$1 build=$2 failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/moved"
run() { (cd / && env -i PATH="$PATH" LC_ALL=C "$work/moved/bin/gdn" "$@" 2>&1); }
fail() { echo "$1"; failed=1; }
out=$(run targets --target cpu) || fail "cpu is not usable: $out"
case $out in *"$work/moved/"*libgdn_cpu.so*) ;; *) fail "not the moved plugin: $out";; esac
# Its own settings files, not those of the source tree.
ini=$(find "$work/moved" -name cpu.ini)
[ -f "$ini" ] || fail "no cpu.ini was installed"
sed -i 's/^w4a4_mx_nt = 4/w4a4_mx_nt = 1/' "$ini"
out=$(run levers --target cpu)
echo "$out" | grep -Eq '^w4a4_mx_nt +1 +conf +cpu\.ini:[0-9]+$' || fail "not the moved settings: $out"
# The control: without the plugin the answer is no, and says where it looked.
find "$work/moved" -name 'libgdn_cpu.so' -exec rm {} +
out=$(run targets --target cpu) && fail "usable without a plugin: $out"
case $out in *"$work/moved/"*"no such file"*) ;; *) fail "no place is named: $out";; esac
# A header that includes its neighbours, as a user has them.
printf '#include <gdn/gdn.h>\nint main(void) { return !gdn_version(); }\n' >"$work/user.c"
[ -f "$work/moved/include/gdn/gdn.h" ] || fail "gdn.h was not installed"
cc=${CC:-cc}
"$cc" -I"$work/moved/include" -I"$work/moved/include/gdn" "$work/user.c" -L"$(dirname "$(find "$work/moved" -name libgdn.so)")" -lgdn -o "$work/user" ||
    fail "a program against the installed tree does not build"
exit $failed
