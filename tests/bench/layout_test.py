#!/usr/bin/env python3
"""gdn_abi.py against the headers: CC -I ... of a program that prints where every field is. Arguments: CC, then the include folders.

A structure of the headers may have grown at its end: libgdn goes by struct_size."""
import os
import subprocess
import sys
import tempfile

import gdn_abi

# The base of a rule's shape is a structure of its own in the headers.
BASE = {"struct_size": "base.struct_size", "op": "base.op", "flags": "base.flags", "act_type": "base.act_type"}


def program():
    yield '#include "gdn.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {'
    for name, s in gdn_abi.STRUCTURES.items():
        for field, *_ in s._fields_:
            real = BASE.get(field, field) if name == "gdn_rule_shape" else field
            yield f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {real}), sizeof((({name} *)0)->{real}));'
    for name in gdn_abi.NUMBERS:
        yield f'printf("{name} %d 0\\n", (int){name});'
    yield "return 0; }"


def expected():
    for name, s in gdn_abi.STRUCTURES.items():
        for field, *_ in s._fields_:
            yield f"{name}.{field} {getattr(s, field).offset} {getattr(s, field).size}"
    for name, number in gdn_abi.NUMBERS.items():
        yield f"{name} {number} 0"


def main():
    cc, *folders = sys.argv[1:]
    with tempfile.TemporaryDirectory() as tmp:
        source, out = os.path.join(tmp, "layout.c"), os.path.join(tmp, "layout")
        with open(source, "w") as f:
            f.write("\n".join(program()))
        subprocess.run([cc, "-std=c11", *(f"-I{d}" for d in folders), source, "-o", out], check=True)
        found = subprocess.run([out], check=True, capture_output=True, text=True).stdout.splitlines()
    wrong = [f"{b}; the headers: {a}" for a, b in zip(found, expected()) if a != b]
    print("\n".join(wrong) or f"{len(found)} fields and numbers are where the headers have them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
