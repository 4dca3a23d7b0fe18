#!/bin/sh
# needed.sh BUILD_DIR: which libraries the built files ask for, the oldest glibc that has their symbols, and that they carry no search path and
# no text relocations.
set -u
build=$1 failed=0
libc='libc\.so\.6|ld-linux[-a-z0-9_]*\.so\.[0-9]+'
needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
only() { # file, pattern
    bad=$(needed "$1" | grep -Ev "^($2)\$")
    [ -z "$bad" ] || { echo "$1 needs $bad"; return 1; }
}
plain() { ! readelf -d "$1" | grep -E 'RPATH|RUNPATH|TEXTREL'; }
for f in "$build"/lib/gdn/*/libgdn_cpu.so; do
    only "$f" "$libc|libm\.so\.6|libgomp\.so\.1|libomp\.so\.5|libgcc_s\.so\.1" && plain "$f" || failed=1
done
only "$build/lib/libgdn.so" "$libc|libdl\.so\.2|libinih\.so\.1|libxxhash\.so\.0" && plain "$build/lib/libgdn.so" || failed=1
# B204: no symbol of a glibc newer than 2.34, and no C++ library (above). The control: the command has some of 2.2.5.
newest=2.34
versions() { objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | cut -c7- | sort -Vu; }
for f in "$build"/lib/gdn/*/libgdn_*.so "$build/lib/libgdn.so" "$build/bin/gdn"; do
    last=$(versions "$f" | tail -n 1)
    [ "$(printf '%s\n%s\n' "$last" "$newest" | sort -V | tail -n 1)" = "$newest" ] || { echo "$f needs glibc $last"; failed=1; }
done
versions "$build/bin/gdn" | grep -q '^2\.2\.5$' || [ "$(uname -m)" != x86_64 ] || { echo "no versions seen: this test sees nothing"; failed=1; }
# The controls: the command needs more than libc, and its search path is seen.
only "$build/bin/gdn" "$libc" >/dev/null && { echo "the control passed: this test sees nothing"; failed=1; }
plain "$build/bin/gdn" >/dev/null && { echo "no search path seen in bin/gdn: this test sees nothing"; failed=1; }
exit $failed
