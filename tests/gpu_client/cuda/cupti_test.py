#!/usr/bin/env python3
"""NVIDIA's profiling library on our driver: it knows its version and the time, and refuses everything else with an error.
PyTorch and JAX then go on without a profiler; a crash or a hang would end them.

    cupti_test.py LIBCUPTI        (run beside a server)

Each round has a process of its own: before and after cuInit, as frameworks do both.
"""
import ctypes
import os
import subprocess
import sys

LIMIT_S = 60
REQUEST = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
COMPLETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
HEARD = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
KERNEL, RUNTIME = 3, 5  # CUpti_ActivityKind


def profile(library, when):
    cupti, cuda = ctypes.CDLL(library), ctypes.CDLL("libcuda.so.1")
    if when == "after":
        assert cuda.cuInit(0) == 0
    request, complete, heard = REQUEST(lambda *_: None), COMPLETE(lambda *_: None), HEARD(lambda *_: None)
    version, time_ns, subscriber = ctypes.c_uint32(), ctypes.c_uint64(), ctypes.c_void_p()
    assert cupti.cuptiGetVersion(ctypes.byref(version)) == 0
    assert version.value > 0
    assert cupti.cuptiSubscribe(ctypes.byref(subscriber), heard, None) != 0
    assert cupti.cuptiActivityRegisterCallbacks(request, complete) != 0
    for kind in (KERNEL, RUNTIME):
        assert cupti.cuptiActivityEnable(kind) != 0
    assert cupti.cuptiGetTimestamp(ctypes.byref(time_ns)) == 0
    assert time_ns.value > 0
    if when == "before":
        assert cuda.cuInit(0) == 0
    cupti.cuptiActivityFlushAll(1)
    count = ctypes.c_int()
    assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    assert count.value > 0  # the driver is as well as before


def main():
    library, *when = sys.argv[1:]
    if when:
        return profile(library, when[0])
    for when in ("before", "after"):
        done = subprocess.run([sys.executable, os.path.abspath(__file__), library, when], timeout=LIMIT_S)
        if done.returncode != 0:
            print(f"{when} cuInit: ended with status {done.returncode}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
