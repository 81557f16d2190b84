#!/usr/bin/env python3
"""The steps of a training loop without a framework: launches, copies in, a number out, a wait. For test-gpu, which compares
the same loop local and remoted; needs nothing but Python and a libcuda.so.1.

    driver_steps.py --seconds 2        prints one line of JSON
"""
import argparse
import ctypes
import json
import time

LAUNCHES = 100
INPUT_BYTES = 4096
KERNEL = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry step(.param .u64 number)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [number];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [%rd2];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd2], %r2;
    ret;
}
"""

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *values):
    code = getattr(cuda, name)(*values)
    if code != 0:
        raise SystemExit(f"driver_steps: {name} failed: {code}")


def round_trips():
    """How often our library has waited for the network; None with any other."""
    try:
        count = cuda.cuTnrRoundTrips
    except AttributeError:
        return None
    count.restype = ctypes.c_ulonglong
    return count()


class Loop:
    def __init__(self):
        self.number, self.target, self.host = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_void_p()
        self.stream, module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        context = ctypes.c_void_p()
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        call("cuCtxSetCurrent", context)
        call("cuMemAlloc_v2", ctypes.byref(self.number), ctypes.c_size_t(4))
        call("cuMemAlloc_v2", ctypes.byref(self.target), ctypes.c_size_t(3 * INPUT_BYTES))
        call("cuMemHostAlloc", ctypes.byref(self.host), ctypes.c_size_t(4 * INPUT_BYTES), 0)
        call("cuStreamCreate", ctypes.byref(self.stream), 1)
        call("cuModuleLoadData", ctypes.byref(module), KERNEL)
        call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"step")
        call("cuMemsetD32_v2", self.number, 0, ctypes.c_size_t(1))
        call("cuCtxSynchronize")  # our stream does not wait for the null stream
        self.parameters = (ctypes.c_void_p * 1)(ctypes.addressof(self.number))

    def step(self):
        """The kernel's count, which shows that every launch was made."""
        for i in range(3):
            at = i * INPUT_BYTES
            call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(self.target.value + at), ctypes.c_void_p(self.host.value + at),
                 ctypes.c_size_t(INPUT_BYTES), self.stream)
        for _ in range(LAUNCHES):
            call("cuLaunchKernel", self.kernel, 1, 1, 1, 1, 1, 1, 0, self.stream, self.parameters, None)
        out = self.host.value + 3 * INPUT_BYTES
        call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(out), self.number, ctypes.c_size_t(4), self.stream)
        call("cuStreamSynchronize", self.stream)
        return ctypes.c_uint32.from_address(out).value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    loop = Loop()
    steps, trips, begin = 0, round_trips(), 0.0
    warm = loop.step() // LAUNCHES
    begin, trips = time.perf_counter(), round_trips()
    while steps == 0 or time.perf_counter() - begin < options.seconds:
        result = loop.step()
        steps += 1
    took = time.perf_counter() - begin
    if result != (warm + steps) * LAUNCHES:
        raise SystemExit(f"driver_steps: {result} launches were made, {(warm + steps) * LAUNCHES} wanted")
    print(json.dumps({"steps_per_s": steps / took, "result": 0,
                      "round_trips_per_step": None if trips is None else (round_trips() - trips) / steps}))


if __name__ == "__main__":
    main()
