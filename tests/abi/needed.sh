#!/bin/sh
# needed.sh BUILD_DIR: which libraries the built files ask for, and that they carry no search path and no text relocations.
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
# The controls: the command needs more than libc, and its search path is seen.
only "$build/bin/gdn" "$libc" >/dev/null && { echo "the control passed: this test sees nothing"; failed=1; }
plain "$build/bin/gdn" >/dev/null && { echo "no search path seen in bin/gdn: this test sees nothing"; failed=1; }
exit $failed
