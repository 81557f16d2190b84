"""cuda-bindings (driver, runtime, NVRTC) and cuda.core (Program, launch, streams, events, buffers, green
contexts)."""
import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc, runtime


def ok(result):
    status, *values = result
    assert int(status) == 0, status
    return values[0] if len(values) == 1 else values


source = rb'''
extern "C" __global__ void scale(float* data, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= by;
}
'''
program = ok(nvrtc.nvrtcCreateProgram(source, b"scale.cu", 0, [], []))
ok(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_75"]))
ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
ok(nvrtc.nvrtcGetPTX(program, ptx))

ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
context = ok(driver.cuDevicePrimaryCtxRetain(device))
ok(driver.cuCtxSetCurrent(context))
kernel = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(np.char.array(ptx).ctypes.data)), b"scale"))
data = np.arange(1000, dtype=np.float32)
memory = ok(driver.cuMemAlloc(data.nbytes))
ok(driver.cuMemcpyHtoD(memory, data.ctypes.data, data.nbytes))
arguments = ((int(memory), 2.5, 1000), (ctypes.c_void_p, ctypes.c_float, ctypes.c_int))
ok(driver.cuLaunchKernel(kernel, 4, 1, 1, 256, 1, 1, 0, 0, arguments, 0))
result = np.empty_like(data)
ok(driver.cuMemcpyDtoH(result.ctypes.data, memory, data.nbytes))
np.testing.assert_array_equal(result, data * np.float32(2.5))
assert ok(runtime.cudaGetDeviceCount()) >= 1
name = ok(runtime.cudaGetDeviceProperties(0)).name.decode()

from cuda.core import ContextOptions, Device, LaunchConfig, Program, ProgramOptions, SMResourceOptions, launch

gpu = Device()
gpu.set_current()
stream = gpu.create_stream()
compiled = Program(source.decode(), code_type="c++", options=ProgramOptions(arch="compute_75")).compile(
    "ptx", name_expressions=())
begin, end = (stream.record() for _ in range(2))
buffer = gpu.allocate(data.nbytes, stream=stream)
ok(driver.cuMemcpyHtoDAsync(int(buffer.handle), data.ctypes.data, data.nbytes, stream.handle))
launch(stream, LaunchConfig(grid=4, block=256), compiled.get_kernel("scale"), buffer, np.float32(4), np.int32(1000))
ok(driver.cuMemcpyDtoHAsync(result.ctypes.data, int(buffer.handle), data.nbytes, stream.handle))
stream.sync()
np.testing.assert_array_equal(result, data * 4)
buffer.close(stream)

# A green context with a part of the multiprocessors.
parts, rest = gpu.resources.sm.split(SMResourceOptions(count=(16, 16)))
assert [part.sm_count for part in parts] == [16, 16] and rest.sm_count == gpu.resources.sm.sm_count - 32
green = gpu.create_context(ContextOptions(resources=[parts[0]]))
apart = green.create_stream()
assert green.is_green and green.resources.sm.sm_count == 16 and apart.context.is_green
buffer = gpu.allocate(data.nbytes, stream=apart)
ok(driver.cuMemcpyHtoDAsync(int(buffer.handle), data.ctypes.data, data.nbytes, apart.handle))
launch(apart, LaunchConfig(grid=4, block=256), compiled.get_kernel("scale"), buffer, np.float32(8), np.int32(1000))
ok(driver.cuMemcpyDtoHAsync(result.ctypes.data, int(buffer.handle), data.nbytes, apart.handle))
apart.sync()
np.testing.assert_array_equal(result, data * 8)
before = gpu.set_current(green)
inside = gpu.create_stream()
assert inside.context.is_green
gpu.set_current(before)
buffer.close(apart)
for each in (inside, apart, green):
    each.close()
print("cuda-bindings, cuda.core:", name)
