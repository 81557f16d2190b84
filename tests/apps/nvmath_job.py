"""nvmath-python: Fourier transforms by cuFFT, and in a kernel of numba-cuda by cuFFTDx, which nvJitLink links into it."""
import nvjitlink_as_ptx

LINKER = nvjitlink_as_ptx.load()
import cupy
import numpy as np
import nvmath
from numba import cuda
from nvmath.device import FFT

random = np.random.default_rng(1)


def complex_numbers(*shape):
    return (random.random(shape) + 1j * random.random(shape)).astype(np.complex64)


def host_transforms():
    for shape in ((64, 48), (100,), (7, 11, 13)):
        values = complex_numbers(*shape)
        there = nvmath.fft.fft(cupy.asarray(values))
        np.testing.assert_allclose(there.get(), np.fft.fftn(values), rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(nvmath.fft.ifft(there).get() / values.size, values, rtol=1e-4, atol=1e-4)


def device_transform():
    fft = FFT(fft_type="c2c", size=32, precision=np.float32, direction="forward", ffts_per_block=2, elements_per_thread=2,
              execution="Block")
    kind, room, stride, each, together = (fft.value_type, fft.storage_size, fft.stride, fft.elements_per_thread,
                                          fft.ffts_per_block)

    @cuda.jit
    def transform(data):
        own, shared = cuda.local.array(room, kind), cuda.shared.array(0, kind)
        row = cuda.blockIdx.x * together + cuda.threadIdx.y
        for k in range(each):
            own[k] = data[row, cuda.threadIdx.x + k * stride]
        fft.execute(own, shared)
        for k in range(each):
            data[row, cuda.threadIdx.x + k * stride] = own[k]

    values = complex_numbers(6, 32)
    data = cuda.to_device(values)
    transform[3, fft.block_dim, 0, fft.shared_memory_size](data)
    np.testing.assert_allclose(data.copy_to_host(), np.fft.fft(values), rtol=1e-4, atol=1e-4)


for step in (host_transforms, device_transform):
    step()
print("nvmath-python", nvmath.__version__)
