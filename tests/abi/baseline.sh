#!/bin/sh
# baseline.sh BUILD_DIR: the cpu target's objects, but those of isa/ for AVX, hold no AVX instruction (B208).
set -u
build=$1 failed=0
case $(uname -m) in x86_64) ;; *) echo "not x86-64: skipped"; exit 77;; esac
# ymm and zmm, mask registers, and every VEX or EVEX form on xmm (their names begin with v).
avx='%[yz]mm|%k[0-7]|[[:space:]]v[a-z0-9]+[[:space:]].*%xmm|[[:space:]]vzero'
count() { find "$@" -name '*.o' -exec objdump -d --no-show-raw-insn {} + | grep -Ec "$avx"; }
plain="$build/kernels/CMakeFiles/gdn_cpu_kernels.dir $build/kernels/CMakeFiles/gdn_cpu_isa_base.dir $build/plugin/CMakeFiles/gdn_cpu.dir $build/host/CMakeFiles/gdn_host_objects.dir"
for d in $plain; do
    n=$(count "$d")
    [ "$n" = 0 ] || { echo "$d: $n AVX instructions"; failed=1; }
    [ -n "$(find "$d" -name '*.o')" ] || { echo "$d: no objects"; failed=1; }
done
[ "$(count "$build/kernels/CMakeFiles/gdn_cpu_isa_avx2.dir")" -gt 100 ] || { echo "no AVX seen in the avx2 objects: this test sees nothing"; failed=1; }
exit $failed
