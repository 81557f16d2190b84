#!/usr/bin/env python3
"""A program that may have no more descriptors, or no more threads, learns that from a call: the library never ends it.

Run through tests/support/with_server.py, with a server for each: who is given GPUs again and again and never uses them waits
for more. The program is this script again, with less and less of the one.
"""
import ctypes
import os
import resource
import subprocess
import sys

NOBODY = 65_534  # limits of processes do not hold for root
OURS = 40  # descriptors, or threads, of the library and of Python: more than they need
LIMITS = {"descriptors": resource.RLIMIT_NOFILE, "threads": resource.RLIMIT_NPROC}
SAYS = {resource.RLIMIT_NOFILE: "ulimit -n", resource.RLIMIT_NPROC: "ulimit -u"}


def use_the_gpu():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    limit, count = int(sys.argv[2]), int(sys.argv[3])
    if limit == resource.RLIMIT_NPROC and os.getuid() == 0:
        os.setgroups([])
        os.setuid(NOBODY)
    resource.setrlimit(limit, (count, count))
    codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
             cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)),
             cuda.cuMemsetD8_v2(address, ctypes.c_ubyte(1), ctypes.c_size_t(4096)), cuda.cuCtxSynchronize()]
    print("used" if not any(codes) else "refused")


def run(limit, count):
    """(what became of it, what the library said)"""
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "use", str(limit), str(count)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
    assert done.returncode == 0, f"limit {limit} at {count}: {done}"
    return done.stdout.strip(), done.stderr


def shrinks(limit):
    """OURS are enough, none are too few, and in between it is an error that says what is missing."""
    counts = range(OURS, 3, -2)
    results = [run(limit, count) for count in counts]
    for count, (outcome, said) in zip(counts, results):
        print(f"limit {limit} at {count}: {outcome}", *said.splitlines()[:2], sep="\n    ")
        assert outcome == "used" or "tnr: " in said
    assert results[0][0] == "used"
    refusals = [said for outcome, said in results if outcome == "refused"]
    if refusals:  # the limit may not hold here
        assert SAYS[limit] in refusals[-1], refusals[-1]
    assert limit != resource.RLIMIT_NOFILE or refusals


def main():
    if sys.argv[1:2] == ["use"]:
        return use_the_gpu()
    shrinks(LIMITS[sys.argv[1]])


if __name__ == "__main__":
    main()
