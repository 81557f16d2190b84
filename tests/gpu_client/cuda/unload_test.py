#!/usr/bin/env python3
"""A program may close our libraries while it uses the GPU, and open them again: LLVM's offloading does at its end.

Run through tests/support/with_server.py. A library that were unloaded would take the code away from its own threads.
"""
import _ctypes
import ctypes
import time

BYTES = 1 << 20


def use_the_gpu(byte):
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *values):
        code = getattr(cuda, name)(*values)
        assert code == 0, f"{name}: {code}"

    context, address, into = ctypes.c_void_p(), ctypes.c_uint64(), (ctypes.c_ubyte * BYTES)()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(BYTES))
    call("cuMemsetD8_v2", address, ctypes.c_ubyte(byte), ctypes.c_size_t(BYTES))
    call("cuMemcpyDtoH_v2", into, address, ctypes.c_size_t(BYTES))
    assert set(into) == {byte}
    call("cuMemsetD8_v2", address, ctypes.c_ubyte(byte), ctypes.c_size_t(BYTES))  # under way while it is closed
    _ctypes.dlclose(cuda._handle)


def ask_for_the_gpu():
    nvml, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint()
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
    assert count.value >= 1
    assert nvml.nvmlShutdown() == 0
    _ctypes.dlclose(nvml._handle)


for byte in (1, 2, 3):
    use_the_gpu(byte)
    ask_for_the_gpu()
    time.sleep(0.2)  # for threads to come back to code that is not there
