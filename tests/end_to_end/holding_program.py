"""Holds a GPU and computes on it, until it is asked to end: each number that comes back is one more than the last."""
import ctypes
import signal
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
context, memory, word = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()


def call(name, *values):
    code = getattr(cuda, name)(*values)
    if code:
        sys.exit(f"{name} returned {code}")


call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4096))
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
print("ready", flush=True)
done, longest = 0, 0.0
while not asked:
    begun = time.monotonic()
    done += 1
    call("cuMemsetD32_v2", memory, ctypes.c_uint(done), ctypes.c_size_t(1024))
    call("cuMemcpyDtoH_v2", ctypes.byref(word), memory, ctypes.c_size_t(4))
    if word.value != done:
        sys.exit(f"{word.value} instead of {done}")
    longest = max(longest, time.monotonic() - begun)
    time.sleep(0.01)
print(f"computed {done} times, the longest pause was {longest:.2f} s")
