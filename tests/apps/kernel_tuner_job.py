"""Kernel Tuner with CuPy: each block size of a kernel is compiled, checked against numpy, and timed by events."""
import kernel_tuner
import numpy as np

SOURCE = """
extern "C" __global__ void blur(float* out, const float* in, int n) {
    __shared__ float tile[block_size_x + 2];
    int i = blockIdx.x * block_size_x + threadIdx.x, t = threadIdx.x;
    tile[t + 1] = i < n ? in[i] : 0;
    if (t == 0) tile[0] = i > 0 && i <= n ? in[i - 1] : 0;
    if (t == block_size_x - 1) tile[t + 2] = i + 1 < n ? in[i + 1] : 0;
    __syncthreads();
    if (i < n) out[i] = (tile[t] + 2 * tile[t + 1] + tile[t + 2]) / 4;
}"""

n = np.int32(5000)
values = np.random.default_rng(1).random(n).astype(np.float32)
around = np.pad(values, 1)
wanted = (around[:-2] + 2 * values + around[2:]) / 4
results, environment = kernel_tuner.tune_kernel(
    "blur", SOURCE, n, [np.zeros_like(values), values, n], {"block_size_x": [32, 64, 128, 256]},
    answer=[wanted, None, None], lang="cupy", verbose=True, iterations=2)
assert sorted(result["block_size_x"] for result in results) == [32, 64, 128, 256]
assert all(result["time"] > 0 for result in results), results
print("Kernel Tuner:", environment["device_name"])
