"""TileLang: tiles of a kernel written in Python become CUDA, which nvcc compiles: a product with tensor cores and pipelined
copies, row sums, and attention, on PyTorch's memory."""
import numpy as np
import tilelang
import tilelang.language as T
import torch
from tilelang.contrib import nvcc

compile_cuda = nvcc.compile_cuda
# It would have nvcc make machine code.
nvcc.compile_cuda = lambda code, target_format="ptx", *rest, **options: compile_cuda(code, "ptx", *rest, **options)
tilelang.disable_cache()
random = np.random.default_rng(1)
TARGET = {"kind": "cuda", "arch": "sm_80"}


def half(*shape):
    return torch.from_numpy(random.normal(size=shape).astype(np.float16))


def product(rows, columns, inner, tile=64, step=32):
    @T.prim_func
    def kernel(a: T.Tensor((rows, inner), "float16"), b: T.Tensor((inner, columns), "float16"),
               c: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(columns, tile), T.ceildiv(rows, tile), threads=128) as (x, y):
            left, right = T.alloc_shared((tile, step), "float16"), T.alloc_shared((step, tile), "float16")
            total = T.alloc_fragment((tile, tile), "float32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(inner, step), num_stages=2):
                T.copy(a[y * tile, k * step], left)
                T.copy(b[k * step, x * tile], right)
                T.gemm(left, right, total)
            T.copy(total, c[y * tile, x * tile])
    return kernel


def attention(length, width, tile=32):
    scale = 1.44269504 / width**0.5

    @T.prim_func
    def kernel(q: T.Tensor((length, width), "float16"), k: T.Tensor((length, width), "float16"),
               v: T.Tensor((length, width), "float16"), out: T.Tensor((length, width), "float32")):
        with T.Kernel(T.ceildiv(length, tile), threads=64) as x:
            own, keys, values = (T.alloc_shared((tile, width), "float16") for _ in range(3))
            scores, weights = T.alloc_fragment((tile, tile), "float32"), T.alloc_fragment((tile, tile), "float16")
            total = T.alloc_fragment((tile, width), "float32")
            largest, before, shrink, part, sums = (T.alloc_fragment((tile,), "float32") for _ in range(5))
            T.copy(q[x * tile, 0], own)
            T.clear(total)
            T.clear(sums)
            T.fill(largest, -T.infinity("float32"))
            for step in T.Pipelined(T.ceildiv(length, tile), num_stages=1):
                T.copy(k[step * tile, 0], keys)
                T.clear(scores)
                T.gemm(own, keys, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(largest, before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(tile):
                    shrink[i] = T.exp2((before[i] - largest[i]) * scale)
                for i, j in T.Parallel(tile, tile):
                    scores[i, j] = T.exp2((scores[i, j] - largest[i]) * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(tile):
                    sums[i] = sums[i] * shrink[i] + part[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(tile, width):
                    total[i, j] *= shrink[i]
                T.copy(v[step * tile, 0], values)
                T.gemm(weights, values, total, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(tile, width):
                total[i, j] /= sums[i]
            T.copy(total, out[x * tile, 0])
    return kernel


def run(kernel, shape, *inputs):
    out = torch.empty(shape, device="cuda")
    tilelang.compile(kernel, target=TARGET)(*(value.cuda() for value in inputs), out)
    return out.cpu().numpy()


a, b = half(128, 64), half(64, 192)
np.testing.assert_allclose(run(product(128, 192, 64), (128, 192), a, b), a.double().numpy() @ b.double().numpy(), atol=1e-4)

q, k, v = (half(64, 32) for _ in range(3))
scores = q.double().numpy() @ k.double().numpy().T / 32**0.5
weights = np.exp(scores - scores.max(axis=1, keepdims=True))
expected = weights / weights.sum(axis=1, keepdims=True) @ v.double().numpy()
np.testing.assert_allclose(run(attention(64, 32), (64, 32), q, k, v), expected, atol=5e-3)
print("TileLang", tilelang.__version__)
