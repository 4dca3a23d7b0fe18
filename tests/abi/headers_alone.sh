#!/bin/sh
# headers_alone.sh c|cxx COMPILER SOURCE_DIR: every public header compiles alone, without hidden padding.
set -u
kind=$1 compiler=$2 source=$3 failed=0
[ -n "$compiler" ] && [ "$compiler" != GDN_CXX-NOTFOUND ] || { echo "no C++ compiler here: skipped"; exit 77; }
case $kind in c) standards="c99 c11"; lang=c;; *) standards="c++17"; lang=c++;; esac
try() { # std, text
    printf '%s\n' "$2" | "$compiler" -std="$1" -x $lang -Wall -Wextra -pedantic -Wpadded -Werror -fsyntax-only -I"$source/abi" -I"$source/host" - 2>err.$kind
}
for std in $standards; do
    for header in "$source"/abi/*.h "$source"/host/gdn.h; do
        # Used, so that macros are expanded too.
        try "$std" "#include \"$header\"
int use(void); int use(void) { return 0; }" || { echo "$header as $std:"; cat err.$kind; failed=1; }
    done
    # The control: hidden padding must not pass.
    if try "$std" "struct p { char a; long b; }; int use(struct p *p); int use(struct p *p) { return (int)p->b; }"; then
        echo "$std: padding passed, so this test sees nothing"; failed=1
    fi
done
exit $failed
