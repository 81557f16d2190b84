#!/usr/bin/env python3
"""How long a program waits until it can use a GPU. For test-gpu, which compares it local and remoted.

    start_times.py            prints one line of JSON: seconds of cuInit, of the first context, and of a whole program that only
                              asks which devices there are
"""
import ctypes
import json
import subprocess
import sys
import time

ASKS = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int(); " \
       "raise SystemExit(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0)"


def took(function, *values):
    begin = time.perf_counter()
    code = function(*values)
    if code != 0:
        raise SystemExit(f"start_times: {function.__name__} failed: {code}")
    return time.perf_counter() - begin


def main():
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    found = {"init_s": took(cuda.cuInit, 0), "context_s": took(cuda.cuDevicePrimaryCtxRetain, ctypes.byref(context), 0)}
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-S", "-c", ASKS], check=True)
    print(json.dumps({**found, "asking_s": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
