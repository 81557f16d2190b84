#!/usr/bin/env python3
"""cuBLAS, cuFFT and cuDNN through ctypes, from NVIDIA's wheels or a toolkit: one small computation each, checked against
what must come out. For test-gpu.

    libraries.py cublas|cufft|cudnn    prints one line of JSON: {"result": "a digest of the bits"}

Exit status 77: the library is not installed. 1: it fails or computes something else.
"""
import ctypes
import glob
import hashlib
import json
import os
import site
import struct
import sys
import sysconfig

from checks import lacks

SIZE = 64

cuda = ctypes.CDLL("libcuda.so.1")


def fail(why):
    print(f"libraries: {why}", file=sys.stderr)
    sys.exit(1)


def call(library, name, *values):
    code = getattr(library, name)(*values)
    if code != 0:
        fail(f"{name} failed: {code}")


def load(name):
    """The newest lib<name>.so.N of a wheel, else of the toolkit, else of the system."""
    folders = {sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()}
    patterns = [os.path.join(folder, "nvidia", "**", f"lib{name}.so.*") for folder in folders]
    patterns += [f"/usr/local/cuda/lib64/lib{name}.so.*", f"/usr/lib/x86_64-linux-gnu/lib{name}.so.*"]
    for pattern in patterns:
        found = sorted(glob.glob(pattern, recursive=True))
        if found:
            # cuBLAS finds its other half beside itself only when that is loaded already.
            for sibling in sorted(glob.glob(os.path.join(os.path.dirname(found[0]), f"lib{name}Lt.so.*")))[:1]:
                ctypes.CDLL(sibling, ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(found[0], ctypes.RTLD_GLOBAL)
    lacks("libraries", f"{name} is not installed")


class Memory:
    """Floats on the device."""

    def __init__(self, values):
        self.count = len(values)
        self.address = ctypes.c_uint64()
        call(cuda, "cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(4 * self.count))
        data = struct.pack(f"{self.count}f", *values)
        call(cuda, "cuMemcpyHtoD_v2", self.address, data, ctypes.c_size_t(len(data)))
        self.pointer = ctypes.c_void_p(self.address.value)

    def read(self):
        call(cuda, "cuCtxSynchronize")
        data = ctypes.create_string_buffer(4 * self.count)
        call(cuda, "cuMemcpyDtoH_v2", data, self.address, ctypes.c_size_t(len(data)))
        return list(struct.unpack(f"{self.count}f", data.raw))


def close(values, expected, what):
    if any(abs(value - wanted) > 1e-3 * max(1.0, abs(wanted)) for value, wanted in zip(values, expected)):
        fail(f"{what} computes something else")
    return hashlib.sha256(struct.pack(f"{len(values)}f", *values)).hexdigest()[:16]


def cublas():
    library, handle = load("cublas"), ctypes.c_void_p()
    call(library, "cublasCreate_v2", ctypes.byref(handle))
    a = [((i * 7) % 13) / 13 for i in range(SIZE * SIZE)]
    b = [((i * 5) % 11) / 11 for i in range(SIZE * SIZE)]
    left, right, out = Memory(a), Memory(b), Memory([0.0] * (SIZE * SIZE))
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    call(library, "cublasSgemm_v2", handle, 0, 0, SIZE, SIZE, SIZE, ctypes.byref(one), left.pointer, SIZE, right.pointer, SIZE,
         ctypes.byref(zero), out.pointer, SIZE)
    expected = [sum(a[k * SIZE + i] * b[j * SIZE + k] for k in range(SIZE)) for j in range(SIZE) for i in range(SIZE)]
    return close(out.read(), expected, "cublasSgemm")


def cufft():
    """Of a unit pulse: ones."""
    library, plan = load("cufft"), ctypes.c_int()
    c2c, forward, batch = 0x29, -1, 1
    call(library, "cufftPlan1d", ctypes.byref(plan), SIZE, c2c, batch)
    data = Memory([1.0] + [0.0] * (2 * SIZE - 1))
    call(library, "cufftExecC2C", plan, data.pointer, data.pointer, forward)
    return close(data.read(), [1.0, 0.0] * SIZE, "cufftExecC2C")


def cudnn():
    library, handle = load("cudnn"), ctypes.c_void_p()
    tensor, relu = ctypes.c_void_p(), ctypes.c_void_p()
    nchw, floats, relu_mode, keep_nan = 0, 0, 1, 0
    call(library, "cudnnCreate", ctypes.byref(handle))
    call(library, "cudnnCreateTensorDescriptor", ctypes.byref(tensor))
    call(library, "cudnnSetTensor4dDescriptor", tensor, nchw, floats, 1, 1, SIZE, SIZE)
    call(library, "cudnnCreateActivationDescriptor", ctypes.byref(relu))
    call(library, "cudnnSetActivationDescriptor", relu, relu_mode, keep_nan, ctypes.c_double(0))
    values = [((i * 7) % 13) - 6.0 for i in range(SIZE * SIZE)]
    data, one, zero = Memory(values), ctypes.c_float(1), ctypes.c_float(0)
    call(library, "cudnnActivationForward", handle, relu, ctypes.byref(one), tensor, data.pointer, ctypes.byref(zero), tensor,
         data.pointer)
    return close(data.read(), [max(0.0, value) for value in values], "cudnnActivationForward")


def main():
    checks = {"cublas": cublas, "cufft": cufft, "cudnn": cudnn}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        print(f"usage: libraries.py {'|'.join(checks)}", file=sys.stderr)
        sys.exit(2)
    context = ctypes.c_void_p()
    call(cuda, "cuInit", 0)
    call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call(cuda, "cuCtxSetCurrent", context)
    print(json.dumps({"result": checks[sys.argv[1]]()}))


if __name__ == "__main__":
    main()
