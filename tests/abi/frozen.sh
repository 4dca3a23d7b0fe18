#!/bin/sh
# frozen.sh SOURCE_DIR: while today's minor is the newest frozen one, both say the same but for comments and blanks.
# A difference is an edit without a new minor. (Before 0.1 is released, copying abi/*.h to tests/abi/0.1/ is the answer.)
set -u
source=$1 failed=0
major=$(sed -n 's/^#define GDN_ABI_MAJOR \([0-9]*\)u.*/\1/p' "$source/abi/gdn_plugin.h")
minor=$(sed -n 's/^#define GDN_ABI_MINOR \([0-9]*\)u.*/\1/p' "$source/abi/gdn_plugin.h")
[ -n "$major" ] && [ -n "$minor" ] || { echo "no version in abi/gdn_plugin.h"; exit 1; }
frozen="$source/tests/abi/$major.$minor"
[ -d "$frozen" ] || { echo "minor $major.$minor is not frozen yet: nothing to compare"; exit 77; }
# Comments out, blanks joined.
plain() { tr -s ' \t\n' ' ' <"$1" 2>/dev/null | sed 's@/\*[^*]*\*\**\([^/*][^*]*\*\**\)*/@@g' | tr -s ' '; }
for header in "$source"/abi/*.h "$frozen"/*.h; do
    name=$(basename "$header")
    a=$(plain "$source/abi/$name") b=$(plain "$frozen/$name")
    [ -n "$a" ] && [ "$a" = "$b" ] || { echo "abi/$name is not what tests/abi/$major.$minor/$name says"; failed=1; }
done
# The control: one letter makes a difference.
c=$(sed 's/gdn_plugin_query(/gdn_plugin_ask(/' "$source/abi/gdn_plugin.h" >frozen_control.h && plain frozen_control.h)
[ "$c" != "$(plain "$frozen/gdn_plugin.h")" ] || { echo "the control passed: this test sees nothing"; failed=1; }
exit $failed
