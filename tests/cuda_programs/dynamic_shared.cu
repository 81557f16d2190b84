// Shared memory whose size the launch decides, up to the limit and, by opting in, beyond 48 KiB.
#include "check.hpp"

__global__ void reverse(const int* in, int* out) {
    extern __shared__ int values[];
    values[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

// Every word is written by one thread and read by another.
__global__ void fill(int words, unsigned long long* sum) {
    extern __shared__ int values[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) values[i] = i + 1;
    __syncthreads();
    unsigned long long mine = 0;
    for (int i = threadIdx.x; i < words; i += blockDim.x) mine += values[words - 1 - i];
    atomicAdd(sum, mine);
}

int main() {
    const int block = 200, blocks = 5;
    std::vector<int> in(block * blocks), expected(block * blocks);
    for (int i = 0; i < block * blocks; ++i) {
        in[i] = i * 3;
        expected[i / block * block + block - 1 - i % block] = in[i];
    }
    check::Array<int> device_in(in), out(block * blocks);
    reverse<<<blocks, block, block * sizeof(int)>>>(device_in.data, out.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(out.host(), expected);

    int limit = 0;
    CUDA_OK(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    EXPECT(limit >= 49'152);
    for (int bytes : {49'152, limit}) {
        check::Array<unsigned long long> sum(std::vector<unsigned long long>{0});
        CUDA_OK(cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        fill<<<1, 256, bytes>>>(bytes / 4, sum.data);
        CUDA_LAUNCHED();
        EXPECT(sum.host()[0] == (unsigned long long)(bytes / 4) * (bytes / 4 + 1) / 2);
    }
    EXPECT_ERROR(cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, limit + 1),
                 cudaErrorInvalidValue);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
    return check::finish();
}
