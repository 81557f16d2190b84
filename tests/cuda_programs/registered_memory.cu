// The program's own memory, registered: copied asynchronously, and used by a kernel through its device pointer.
#include "check.hpp"

__global__ void add_one(int* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += 1;
}

int main() {
    const int n = 20'000;
    std::vector<int> in(n), out(n, -1), expected(n);
    for (int i = 0; i < n; ++i) expected[i] = (in[i] = i ^ 0x55) + 1;
    CUDA_OK(cudaHostRegister(in.data(), n * sizeof(int), cudaHostRegisterDefault));
    CUDA_OK(cudaHostRegister(out.data(), n * sizeof(int), cudaHostRegisterPortable));
    EXPECT_ERROR(cudaHostRegister(in.data(), n * sizeof(int), 0), cudaErrorHostMemoryAlreadyRegistered);
    cudaGetLastError();

    check::Array<int> device(n);
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    CUDA_OK(cudaMemcpyAsync(device.data, in.data(), n * sizeof(int), cudaMemcpyHostToDevice, stream));
    add_one<<<(n + 255) / 256, 256, 0, stream>>>(device.data, n);
    CUDA_OK(cudaMemcpyAsync(out.data(), device.data, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT_EQUAL(out, expected);

    CUDA_OK(cudaHostUnregister(in.data()));
    CUDA_OK(cudaHostUnregister(out.data()));
    EXPECT_ERROR(cudaHostUnregister(out.data()), cudaErrorHostMemoryNotRegistered);
    cudaGetLastError();
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
