// Memory allocated and freed in stream order, and a pool of the program's own.
#include "check.hpp"

__global__ void fill(int* values, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = value + i;
}

int main() {
    const int n = 10'000;
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    for (int round = 0; round < 5; ++round) {
        int* values = nullptr;
        std::vector<int> got(n, -1), expected(n);
        CUDA_OK(cudaMallocAsync(&values, n * sizeof(int), stream));
        fill<<<(n + 255) / 256, 256, 0, stream>>>(values, n, round);
        CUDA_OK(cudaMemcpyAsync(got.data(), values, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
        CUDA_OK(cudaFreeAsync(values, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
        for (int i = 0; i < n; ++i) expected[i] = round + i;
        EXPECT_EQUAL(got, expected);
    }

    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool;
    CUDA_OK(cudaMemPoolCreate(&pool, &properties));
    int* values = nullptr;
    CUDA_OK(cudaMallocFromPoolAsync(&values, n * sizeof(int), pool, stream));
    fill<<<(n + 255) / 256, 256, 0, stream>>>(values, n, 9);
    int last = 0;
    CUDA_OK(cudaMemcpyAsync(&last, values + n - 1, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    EXPECT(last == 9 + n - 1);
    CUDA_OK(cudaFreeAsync(values, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaMemPoolDestroy(pool));
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
