"""PyCUDA, built here against the toolkit: PTX from nvcc, pagelocked memory, events, structures as arguments."""
import numpy as np
import pycuda.autoinit
import pycuda.compiler
import pycuda.driver as cuda

# SourceModule asks nvcc for machine code; PTX is what any GPU and the emulated one load.
ptx = pycuda.compiler.compile(r'''
extern "C" __global__ void multiply(float* out, const float* a, const float* b) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    out[i] = a[i] * b[i];
}
extern "C" __global__ void block_sums(const int* in, int* out) {
    extern __shared__ int values[];
    values[threadIdx.x] = in[threadIdx.x + blockIdx.x * blockDim.x];
    __syncthreads();
    for (int step = blockDim.x / 2; step; step /= 2) {
        if (threadIdx.x < step) values[threadIdx.x] += values[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = values[0];
}''', arch="compute_75", target="ptx", no_extern_c=True)
module = cuda.module_from_buffer(ptx)

random = np.random.default_rng(1)
a, b = (random.random(1024, dtype=np.float32) for _ in range(2))
out = np.zeros_like(a)
begin, end = cuda.Event(), cuda.Event()
begin.record()
module.get_function("multiply")(cuda.Out(out), cuda.In(a), cuda.In(b), block=(256, 1, 1), grid=(4, 1))
end.record()
end.synchronize()
np.testing.assert_array_equal(out, a * b)
assert begin.time_till(end) >= 0

values, sums = cuda.pagelocked_empty(2048, np.int32), np.zeros(8, np.int32)
values[:] = random.integers(0, 1000, 2048)
stream = cuda.Stream()
on_device = cuda.mem_alloc(values.nbytes)
cuda.memcpy_htod_async(on_device, values, stream)
module.get_function("block_sums")(on_device, cuda.Out(sums), block=(256, 1, 1), grid=(8, 1), shared=1024, stream=stream)
np.testing.assert_array_equal(sums, values.reshape(8, 256).sum(axis=1))
print("PyCUDA:", pycuda.autoinit.device.name())
