"""cuBLAS and cuBLASLt: products of matrices in single and double precision, one by one and in batches. What it does is right, by
NumPy's numbers. For much it has machine code only; that fails, and is never silently wrong."""
import ctypes
import importlib.util
import pathlib

import numpy as np

folder = pathlib.Path(importlib.util.find_spec("nvidia").submodule_search_locations[0]) / "cu13" / "lib"
runtime, lt, blas = (ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
                     for name in ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13"))
random = np.random.default_rng(1)
REAL = {np.float32: 0, np.float64: 1}  # cudaDataType
COMPUTE = {np.float32: 68, np.float64: 70}  # cublasComputeType_t: 32F, 64F
NONE, TRANSPOSED = 0, 1
# For these it has PTX, of compute capability 12.0.
MUST = {"float32 (7, 5, 4) False", "float32 (7, 5, 4) True", "float32 batch", "float32 vector", "float64 batch"}


def ok(status):
    assert status == 0, status


class Matrix:
    """Of the GPU, column by column, as BLAS has them."""

    def __init__(self, values):
        self.rows, self.kind, self.shape = values.shape[-2], values.dtype, values.shape
        self.address = ctypes.c_void_p()
        data = np.ascontiguousarray(values.swapaxes(-1, -2))
        ok(runtime.cudaMalloc(ctypes.byref(self.address), ctypes.c_size_t(data.nbytes)))
        ok(runtime.cudaMemcpy(self.address, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes), 1))

    def get(self):
        data = np.empty((*self.shape[:-2], self.shape[-1], self.shape[-2]), self.kind)
        ok(runtime.cudaMemcpy(data.ctypes.data_as(ctypes.c_void_p), self.address, ctypes.c_size_t(data.nbytes), 2))
        return data.swapaxes(-1, -2)


def numbers(kind, *shape):
    return random.standard_normal(shape).astype(kind)


def close(got, expected, kind):
    tolerance = {np.float32: 1e-4, np.float64: 1e-12}[kind]
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=10 * tolerance)


def scalar(kind, value):
    return ctypes.byref((ctypes.c_double if kind is np.float64 else ctypes.c_float)(value))


def product(handle, kind, sizes, turned):
    """Whether the GPU has code for it. If so it is right."""
    m, n, k = sizes
    a, b, c = numbers(kind, m, k), numbers(kind, k, n), numbers(kind, m, n)
    there = Matrix(c)
    function = {np.float32: blas.cublasSgemm_v2, np.float64: blas.cublasDgemm_v2}[kind]
    status = function(handle, TRANSPOSED if turned else NONE, NONE, m, n, k, scalar(kind, 1.5),
                      Matrix(a.T if turned else a).address, k if turned else m, Matrix(b).address, k, scalar(kind, -0.5),
                      there.address, m)
    if status == 0:
        close(there.get(), 1.5 * (a @ b) - 0.5 * c, kind)
    return status == 0


def batch(handle, kind, sizes, count):
    m, n, k = sizes
    a, b = numbers(kind, count, m, k), numbers(kind, count, k, n)
    there = Matrix(np.zeros((count, m, n), kind))
    status = blas.cublasGemmStridedBatchedEx(
        handle, NONE, NONE, m, n, k, scalar(kind, 1), Matrix(a).address, REAL[kind], m, ctypes.c_longlong(m * k),
        Matrix(b).address, REAL[kind], k, ctypes.c_longlong(k * n), scalar(kind, 0), there.address, REAL[kind], m,
        ctypes.c_longlong(m * n), count, COMPUTE[kind], -1)
    if status == 0:
        close(there.get(), a @ b, kind)
    return status == 0


def vector(handle, kind, m, n):
    a, x, y = numbers(kind, m, n), numbers(kind, n, 1), numbers(kind, m, 1)
    there = Matrix(y)
    function = {np.float32: blas.cublasSgemv_v2, np.float64: blas.cublasDgemv_v2}[kind]
    status = function(handle, NONE, m, n, scalar(kind, 2), Matrix(a).address, m, Matrix(x).address, 1, scalar(kind, 1),
                      there.address, 1)
    if status == 0:
        close(there.get(), 2 * (a @ x) + y, kind)
    return status == 0


def made(function, *arguments):
    handle = ctypes.c_void_p()
    ok(function(ctypes.byref(handle), *arguments))
    return handle


def with_lt(kind, m, n, k):
    handle = made(lt.cublasLtCreate)
    a, b = numbers(kind, m, k), numbers(kind, k, n)
    there = Matrix(np.zeros((m, n), kind))
    description = made(lt.cublasLtMatmulDescCreate, COMPUTE[kind], REAL[kind])
    layouts = [made(lt.cublasLtMatrixLayoutCreate, REAL[kind], ctypes.c_uint64(rows), ctypes.c_uint64(columns),
                    ctypes.c_int64(rows)) for rows, columns in ((m, k), (k, n), (m, n))]
    status = lt.cublasLtMatmul(handle, description, scalar(kind, 1), Matrix(a).address, layouts[0], Matrix(b).address,
                               layouts[1], scalar(kind, 0), there.address, layouts[2], there.address, layouts[2], None, None,
                               ctypes.c_size_t(0), None)
    if status == 0:
        close(there.get(), a @ b, kind)
    ok(lt.cublasLtDestroy(handle))
    return status == 0


def name(kind):
    return np.dtype(kind).name


blas_handle = made(blas.cublasCreate_v2)
done = {}
for kind in (np.float32, np.float64):
    for m in (1, 7, 64, 130):
        for turned in (False, True):
            sizes = (m, (m + 3) // 2, (m + 7) // 3)
            done[f"{name(kind)} {sizes} {turned}"] = product(blas_handle, kind, sizes, turned)
    done[f"{name(kind)} batch"] = batch(blas_handle, kind, (20, 12, 16), 5)
    done[f"{name(kind)} vector"] = vector(blas_handle, kind, 50, 30)
    done[f"{name(kind)} Lt"] = with_lt(kind, 96, 40, 64)
ok(blas.cublasDestroy_v2(blas_handle))
print("right:", *[one for one, is_done in done.items() if is_done], sep="\n    ")
print("machine code only:", *[one for one, is_done in done.items() if not is_done], sep="\n    ")
assert MUST <= {one for one, is_done in done.items() if is_done}
