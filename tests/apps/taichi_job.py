"""Taichi, or a package that has grown out of it: fields, a stencil, reductions and structural loops, compiled by LLVM to PTX.

    taichi_job.py [PACKAGE]
"""
import importlib
import sys

import numpy as np

ti = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "taichi")
ti.init(arch=ti.cuda, offline_cache=False, log_level=ti.ERROR, device_memory_GB=0.2)
assert ti.lang.impl.current_cfg().arch == ti.cuda, "Taichi went back to the CPU"
n = 64
grid, after = ti.field(ti.f32, (n, n)), ti.field(ti.f32, (n, n))
total = ti.field(ti.f32, ())


@ti.kernel
def diffuse():
    for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
        after[i, j] = 0.25 * (grid[i - 1, j] + grid[i + 1, j] + grid[i, j - 1] + grid[i, j + 1])
    for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
        grid[i, j] = after[i, j]


@ti.kernel
def add_up():
    for i, j in grid:
        total[None] += grid[i, j]


start = np.random.default_rng(1).random((n, n), dtype=np.float32)
grid.from_numpy(start)
expected = start.copy()
for _ in range(10):
    diffuse()
    expected[1:-1, 1:-1] = 0.25 * (expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:])
add_up()
np.testing.assert_allclose(grid.to_numpy(), expected, rtol=1e-5)
np.testing.assert_allclose(total[None], expected.sum(), rtol=1e-4)
print(ti.__name__ + ": CUDA")
