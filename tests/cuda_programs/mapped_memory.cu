// Host memory that kernels read and write in place, pinned by CUDA or registered by the program.
#include "check.hpp"

__global__ void add_one(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + 1;
}

int main() {
    const int n = 5000;
    int *in = nullptr, *device_in = nullptr, *device_out = nullptr;
    CUDA_OK(cudaHostAlloc(&in, n * sizeof(int), cudaHostAllocMapped));
    CUDA_OK(cudaHostGetDevicePointer(&device_in, in, 0));
    std::vector<int> out(n, -1);
    CUDA_OK(cudaHostRegister(out.data(), n * sizeof(int), cudaHostRegisterMapped));
    CUDA_OK(cudaHostGetDevicePointer(&device_out, out.data(), 0));
    for (int round = 0; round < 3; ++round) {
        std::vector<int> expected(n);
        for (int i = 0; i < n; ++i) expected[i] = (in[i] = i * (round + 1)) + 1;
        add_one<<<(n + 255) / 256, 256>>>(device_in, device_out, n);
        CUDA_OK(cudaDeviceSynchronize());
        EXPECT_EQUAL(out, expected);
    }
    CUDA_OK(cudaHostUnregister(out.data()));
    CUDA_OK(cudaFreeHost(in));
    return check::finish();
}
