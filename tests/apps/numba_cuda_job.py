"""numba-cuda: kernels written in Python, compiled to PTX by NVVM: shared memory, atomics, a reduction, a generated ufunc."""
import math

import numpy as np
from numba import cuda, float32, vectorize


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def product(a, b, c):
    left = cuda.shared.array((8, 8), float32)
    right = cuda.shared.array((8, 8), float32)
    row, column = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range(a.shape[1] // 8):
        left[tx, ty] = a[row, tile * 8 + ty]
        right[tx, ty] = b[tile * 8 + tx, column]
        cuda.syncthreads()
        for k in range(8):
            total += left[tx, k] * right[k, ty]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def histogram(values, bins):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i], 1)


@cuda.reduce
def summed(a, b):
    return a + b


@vectorize(["float64(float64)"], target="cuda")
def wave(x):
    return math.sin(x) * math.exp(-x)


x, y = np.arange(5000, dtype=np.float32), np.ones(5000, dtype=np.float32)
expected = 3 * x + y
device_y = cuda.to_device(y)
saxpy[20, 256](np.float32(3), cuda.to_device(x), device_y)
np.testing.assert_array_equal(device_y.copy_to_host(), expected)

random = np.random.default_rng(1)
a, b = (random.random((32, 32), dtype=np.float32) for _ in range(2))
c = np.zeros((32, 32), dtype=np.float32)
product[(4, 4), (8, 8)](a, b, c)
np.testing.assert_allclose(c, a @ b, rtol=1e-5)

values, bins = random.integers(0, 16, 4000), np.zeros(16, dtype=np.int64)
histogram[16, 256](values, bins)
np.testing.assert_array_equal(bins, np.bincount(values, minlength=16))

assert summed(np.arange(3000, dtype=np.float64)) == 2999 * 3000 / 2
points = np.linspace(0, 3, 1000)
np.testing.assert_allclose(wave(points), np.sin(points) * np.exp(-points), rtol=1e-12)
print("numba-cuda:", cuda.get_current_device().name)
