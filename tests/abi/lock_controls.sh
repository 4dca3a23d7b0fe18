#!/bin/sh
# lock_controls.sh COMPILER SOURCE_DIR: edits of the headers that must stop abi_lock from compiling, and appends that must not.
set -u
compiler=$1 source=$2 failed=0
work=$(mktemp -d ./lock_XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
compiles() { # folder of headers
    for f in abi_lock abi_lock_values; do
        "$compiler" -std=gnu11 -fsyntax-only -I"$1" -I"$source/host" "$source/tests/abi/$f.c" >"$work/err" 2>&1 || return 1
    done
}
# want (passes|fails), name, file, sed script
edit() {
    rm -rf "$work/abi"; cp -r "$source/abi" "$work/abi" || exit 1
    sed -i "$4" "$work/abi/$3" || exit 1
    if [ "$2" != none ] && cmp -s "$source/abi/$3" "$work/abi/$3"; then echo "$2: the edit changed nothing"; failed=1; return; fi
    if compiles "$work/abi"; then result=passes; else result=fails; fi
    [ $result = "$1" ] || { echo "$2: $result, expected: $1"; cat "$work/err"; failed=1; }
}
minor='s/GDN_ABI_MINOR [0-9]*u/GDN_ABI_MINOR 99u/'
edit passes none gdn_plugin.h ''
edit passes "append to the table, new minor" gdn_plugin.h "$minor;s/^} gdn_vtable;/void (*later)(void);\n} gdn_vtable;/"
edit fails "append to the table, same minor" gdn_plugin.h 's/^} gdn_vtable;/void (*later)(void);\n} gdn_vtable;/'
edit passes "append to the arguments, new minor" gdn_plugin.h "$minor;s/^} gdn_launch_args;/uint64_t later;\n} gdn_launch_args;/"
edit fails "insert into the table" gdn_plugin.h "$minor;s/^    void (\*fini)/    void (*first)(void);\n&/"
edit fails "one more parameter" gdn_plugin.h "$minor;s/(\*launch)(const gdn_plan \*plan,/(*launch)(const gdn_plan *plan, uint32_t more,/"
edit fails "same size, other type" gdn_plugin.h "$minor;s/uint32_t n_ptr;/int32_t n_ptr;/"
edit fails "two members swapped" gdn_op_rule.h 's/uint32_t nk, nv; /uint32_t nv, nk; /'
edit fails "a status renumbered" gdn_status.h 's/GDN_E_LEVER, -3/GDN_E_LEVER, -33/'
edit fails "two pointers swapped" gdn_op_rule.h 's/X(GDN_DECODE_P_GATE, /X(GDN_DECODE_P_SWAP, /;s/X(GDN_DECODE_P_BETA, /X(GDN_DECODE_P_GATE, /;s/X(GDN_DECODE_P_SWAP, /X(GDN_DECODE_P_BETA, /'
edit fails "an operation renumbered" gdn_ops.h 's/X(DECODE, 7,/X(DECODE, 8,/;s/X(VERIFY, 8,/X(VERIFY, 7,/'
edit fails "the query's type" gdn_plugin.h 's/gdn_plugin_query(uint32_t host_major, uint32_t/gdn_plugin_query(uint32_t host_major, uint64_t/'
exit $failed
