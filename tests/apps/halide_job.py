"""Halide: writes PTX itself and hands it to the driver. A blur in tiles of shared memory, a histogram, a matrix product, and the
CPU's answers to the same."""
import halide as hl
import numpy as np

GPU = hl.get_host_target().with_feature(hl.TargetFeature.CUDA).with_feature(hl.TargetFeature.CUDACapability80)
random = np.random.default_rng(1)
x, y, xi, yi = (hl.Var(name) for name in ("x", "y", "xi", "yi"))


def result(function, sizes):
    out = function.realize(sizes, GPU)
    assert out.has_device_allocation(), "nothing ran on the GPU"
    out.copy_to_host()
    return np.array(out)


image = random.random((60, 100)).astype(np.float32)
source = hl.BoundaryConditions.repeat_edge(hl.Buffer(image))
rows, blur = hl.Func("rows"), hl.Func("blur")
rows[x, y] = (source[x - 1, y] + source[x, y] + source[x + 1, y]) / 3
blur[x, y] = (rows[x, y - 1] + rows[x, y] + rows[x, y + 1]) / 3
blur.gpu_tile(x, y, xi, yi, 16, 8)
rows.compute_at(blur, x).gpu_threads(x, y)
padded = np.pad(image.astype(np.float64), 1, mode="edge")
across = (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3
np.testing.assert_allclose(result(blur, [100, 60]), (across[:-2] + across[1:-1] + across[2:]) / 3, rtol=1e-5)

values = random.integers(0, 16, 3000).astype(np.int32)
numbers, counts = hl.Buffer(values), hl.Func("counts")
at = hl.RDom([(0, 3000)])
counts[x] = 0
counts[hl.clamp(numbers[at.x], 0, 15)] += 1
counts.gpu_tile(x, xi, 16)
counts.update().atomic().gpu_tile(at.x, hl.RVar("block"), hl.RVar("thread"), 128)
np.testing.assert_array_equal(result(counts, [16]), np.bincount(values, minlength=16))

a, b = random.random((40, 30)).astype(np.float32), random.random((30, 50)).astype(np.float32)
left, right, product = hl.Buffer(a), hl.Buffer(b), hl.Func("product")
k = hl.RDom([(0, 30)])
total = hl.Func("total")
total[x, y] = 0.0
total[x, y] += left[k.x, y] * right[x, k.x]
product[x, y] = total[x, y]
product.gpu_tile(x, y, xi, yi, 16, 8)
np.testing.assert_allclose(result(product, [50, 40]), a.astype(np.float64) @ b, rtol=1e-5)
print("Halide:", GPU)
