"""Dr.Jit: writes PTX itself; loops, scatters, prefix sums and derivatives. Its kernels write to pinned memory that nobody has
mapped, and it wants a driver that has OpenGL's calls."""
import drjit as dr
import numpy as np
from drjit.cuda import Float, UInt32
from drjit.cuda.ad import Float as Variable

assert dr.has_backend(dr.JitBackend.CUDA), "Dr.Jit does without CUDA"
n = 100_000
x = np.linspace(0, 1, n)
values = dr.linspace(Float, 0, 1, n)
np.testing.assert_allclose(dr.sum(dr.sin(values) * dr.exp(values))[0], (np.sin(x) * np.exp(x)).sum(), rtol=1e-5)

counted, into = dr.arange(UInt32, 1000), dr.zeros(Float, 10)
dr.scatter_reduce(dr.ReduceOp.Add, into, Float(counted), counted % 10)
np.testing.assert_array_equal(into.numpy(), np.arange(1000).reshape(100, 10).sum(axis=0))
np.testing.assert_array_equal(dr.compress(counted % 7 == 3).numpy(), np.arange(3, 1000, 7))
np.testing.assert_array_equal(dr.cumsum(dr.arange(UInt32, n)).numpy()[-1], n * (n - 1) // 2 % 2**32)


@dr.syntax
def collatz(number):
    steps = dr.zeros(UInt32, dr.width(number))
    while number != 1:
        number = dr.select(number & 1 == 0, number // 2, 3 * number + 1)
        steps += 1
    return steps


def collatz_here(number):
    steps = 0
    while number != 1:
        number, steps = (number // 2 if number % 2 == 0 else 3 * number + 1), steps + 1
    return steps


np.testing.assert_array_equal(collatz(dr.arange(UInt32, 200) + 1).numpy(), [collatz_here(i) for i in range(1, 201)])

points = Variable([1, 2, 3])
dr.enable_grad(points)
dr.backward(dr.sum(points ** 3))
np.testing.assert_allclose(points.grad.numpy(), [3, 12, 27])
print("Dr.Jit: CUDA")
