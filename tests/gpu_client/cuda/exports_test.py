#!/usr/bin/env python3
"""Everything that NVIDIA's libcuda.so exports, ours exports too, and cuda.calls knows it.

    exports_test.py --stub TOOLKIT/lib64/stubs/libcuda.so --ours lib/libcuda.so.1 --calls gpu_client/protocol/cuda.calls

The toolkit's stub names every symbol that a program may link. Ours may export more (the entry points under their older
names, cuTnr… for benchmarks), but nothing that does not begin with "cu".
"""
import argparse
import re
import subprocess
import sys


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = (line.split()[-1].split("@")[0] for line in lines.splitlines() if line.strip())
    return {name for name in names if not name.startswith("_")}


def in_table(path):
    """The symbols of its lines."""
    with open(path) as table:
        return {found[1] for line in table if (found := re.match(r"0x[0-9a-f]{4}\s+\w+\s+(cu\w+)", line))}


def plain(name):
    """Without the mark of the variant for per-thread default streams, which has no line of its own."""
    return re.sub("_(ptsz|ptds)$", "", name)


def complain(what, names):
    if names:
        print(f"{what}: {' '.join(sorted(names))}")
    return bool(names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stub", required=True)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--calls", required=True)
    arguments = parser.parse_args()
    wanted = {name for name in exported(arguments.stub) if name.startswith("cu")}
    ours = exported(arguments.ours)
    table = in_table(arguments.calls)
    if len(wanted) < 500:
        print(f"the stub exports {len(wanted)} functions only: is it the toolkit's?")
        return 1
    wrong = complain("not exported", wanted - ours)
    wrong |= complain("not in cuda.calls", {name for name in wanted if plain(name) not in table})
    wrong |= complain("in cuda.calls but not exported", table - ours)
    wrong |= complain("exported, but no driver function", {name for name in ours if not name.startswith("cu")})
    print(f"{len(wanted)} functions wanted, {len(ours)} exported, {len(table)} in the table")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
