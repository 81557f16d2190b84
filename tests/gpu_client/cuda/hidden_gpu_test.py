#!/usr/bin/env python3
"""Memory of a GPU that CUDA_VISIBLE_DEVICES hides comes from a process that sees it, by IPC: what NCCL and torchrun's
processes do that have a GPU each.

Run through tests/support/with_server.py with two GPUs. The other process is this script again.
"""
import ctypes
import os
import subprocess
import sys

BYTES = 1 << 16


class IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_byte * 64)]


class Cuda:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *values):
        code = getattr(self.library, name)(*values)
        assert code == 0, f"{name}: {code}"

    def fill(self, address, byte):
        self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(byte), ctypes.c_size_t(BYTES))

    def read(self, address):
        into = (ctypes.c_ubyte * BYTES)()
        self.call("cuMemcpyDtoH_v2", into, address, ctypes.c_size_t(BYTES))
        return set(into)


def borrow():
    """With the second GPU alone: sees what the other has written to the first one's memory, and writes there."""
    cuda, theirs = Cuda(), ctypes.c_uint64()
    count = ctypes.c_int()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    assert count.value == 1
    handle = IpcHandle.from_buffer_copy(bytes.fromhex(sys.stdin.readline()))
    cuda.call("cuIpcOpenMemHandle_v2", ctypes.byref(theirs), handle, ctypes.c_uint(1))
    assert cuda.read(theirs) == {17}
    cuda.fill(theirs, 18)
    cuda.call("cuCtxSynchronize")
    cuda.call("cuIpcCloseMemHandle", theirs)


def lend():
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    cuda, ours, handle = Cuda(), ctypes.c_uint64(), IpcHandle()
    cuda.call("cuMemAlloc_v2", ctypes.byref(ours), ctypes.c_size_t(BYTES))
    cuda.fill(ours, 17)
    cuda.call("cuCtxSynchronize")
    cuda.call("cuIpcGetMemHandle", ctypes.byref(handle), ours)
    subprocess.run([sys.executable, __file__, "borrow"], env=dict(os.environ, CUDA_VISIBLE_DEVICES="1"), text=True,
                   input=bytes(handle).hex() + "\n", check=True)
    assert cuda.read(ours) == {18}


borrow() if sys.argv[1:] == ["borrow"] else lend()
