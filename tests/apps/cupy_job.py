"""CuPy: elementwise and reduction kernels that it writes, a raw kernel, sorting, streams and its memory pool."""
import cupy
import numpy as np

random = np.random.default_rng(1)
host = random.random((200, 100), dtype=np.float32)
device = cupy.asarray(host)
np.testing.assert_allclose(cupy.asnumpy(cupy.sqrt(device) * 2 + 1), np.sqrt(host) * 2 + 1, rtol=1e-6)
np.testing.assert_allclose(cupy.asnumpy(device.sum(axis=0)), host.sum(axis=0), rtol=1e-5)
assert int(device.argmax()) == int(host.argmax())

kernel = cupy.RawKernel(r'''
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}''', "add")
a, b, c = cupy.arange(1000, dtype=cupy.float32), cupy.ones(1000, dtype=cupy.float32), cupy.zeros(1000, dtype=cupy.float32)
kernel((4,), (256,), (a, b, c, np.int32(1000)))
np.testing.assert_array_equal(c.get(), np.arange(1000, dtype=np.float32) + 1)

squares = cupy.ElementwiseKernel("float64 x, float64 y", "float64 z", "z = (x - y) * (x - y)", "squares")
x, y = random.random(500), random.random(500)
np.testing.assert_allclose(squares(cupy.asarray(x), cupy.asarray(y)).get(), (x - y) ** 2)

unsorted = random.integers(0, 1 << 30, 3000)
np.testing.assert_array_equal(cupy.sort(cupy.asarray(unsorted)).get(), np.sort(unsorted))
np.testing.assert_array_equal(cupy.cumsum(cupy.asarray(unsorted)).get(), np.cumsum(unsorted))

with cupy.cuda.Stream(non_blocking=True) as stream:
    later = cupy.arange(100) ** 2
    stream.synchronize()
np.testing.assert_array_equal(later.get(), np.arange(100) ** 2)
assert cupy.get_default_memory_pool().used_bytes() > 0
print("CuPy:", cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
