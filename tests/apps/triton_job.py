"""Triton without PyTorch: it has ptxas compile the PTX that it writes; the one beside this file leaves it what it is. A sum of
vectors, row maxima and softmax, a matrix product with tensor cores, atomic counts, tensor descriptors made by the kernel."""
import os
import pathlib
import tempfile

PTXAS = str(pathlib.Path(__file__).resolve().with_name("ptxas"))
os.environ.update(TRITON_PTXAS_PATH=PTXAS, TRITON_PTXAS_BLACKWELL_PATH=PTXAS, TRITON_CACHE_DIR=tempfile.mkdtemp())
import numpy as np
import triton
import triton.language as tl
from cuda.bindings import driver


def done(answer):
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) > 1 else None


class Array:
    """What Triton asks of a tensor: its address and type."""

    def __init__(self, values):
        self.shape, self.dtype, self.bytes = values.shape, values.dtype, values.nbytes
        self.address = done(driver.cuMemAlloc(self.bytes))
        done(driver.cuMemcpyHtoD(self.address, np.ascontiguousarray(values), self.bytes))

    def data_ptr(self):
        return int(self.address)

    def numpy(self):
        values = np.empty(self.shape, self.dtype)
        done(driver.cuMemcpyDtoH(values, self.address, self.bytes))
        return values


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, at < columns, other=-float("inf"))
    power = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, power / tl.sum(power, 0), at < columns)


@triton.jit
def product(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for begin in range(0, k, K):
        inner = begin + tl.arange(0, K)
        left = tl.load(a + rows[:, None] * k + inner[None, :], (rows[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(b + inner[:, None] * n + columns[None, :], (inner[:, None] < k) & (columns[None, :] < n), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total, (rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def count(values, counts, number, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(values + at, at < number, other=0), 1, at < number)


@triton.jit
def double(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [M, N])
    target.store([row, column], source.load([row, column]) * 2)


done(driver.cuInit(0))
done(driver.cuCtxSetCurrent(done(driver.cuDevicePrimaryCtxRetain(done(driver.cuDeviceGet(0))))))
random = np.random.default_rng(1)

x, y = (random.random(5000, np.float32) for _ in range(2))
out = Array(np.zeros(5000, np.float32))
add[(triton.cdiv(5000, 1024),)](Array(x), Array(y), out, 5000, BLOCK=1024)
np.testing.assert_array_equal(out.numpy(), x + y)

rows = random.normal(size=(9, 200)).astype(np.float32)
out = Array(np.zeros_like(rows))
softmax[(9,)](Array(rows), out, 200, BLOCK=256)
powers = np.exp(rows - rows.max(axis=1, keepdims=True))
np.testing.assert_allclose(out.numpy(), powers / powers.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)

for kind, tolerance in (np.float16, 1e-3), (np.float32, 2e-2):  # the latter's products are of tf32
    a, b = random.normal(size=(100, 70)).astype(kind), random.normal(size=(70, 90)).astype(kind)
    out = Array(np.zeros((100, 90), np.float32))
    product[(4, 3)](Array(a), Array(b), out, 100, 90, 70, M=32, N=32, K=32)
    np.testing.assert_allclose(out.numpy(), a.astype(np.float64) @ b.astype(np.float64), rtol=tolerance, atol=tolerance * 10)

values = random.integers(0, 10, 4000, np.int32)
out = Array(np.zeros(10, np.int32))
count[(8,)](Array(values), out, 4000, BLOCK=512)
np.testing.assert_array_equal(out.numpy(), np.bincount(values, minlength=10))

triton.set_allocator(lambda size, alignment, stream: Array(np.zeros(size, np.uint8)))
values = random.random((100, 72), np.float32)
out = Array(np.zeros_like(values))
double[(4, 3)](Array(values), out, 100, 72, M=32, N=32)
np.testing.assert_array_equal(out.numpy(), values * 2)
print("Triton", triton.__version__)
