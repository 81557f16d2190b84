// Managed memory that a program helps along: advice, prefetches one by one and in a batch, and what became of them.
#include "check.hpp"

__global__ void scale(float* values, int n, float by) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) values[i] *= by;
}

static cudaMemLocation device_location() {
    cudaMemLocation where{};
    where.type = cudaMemLocationTypeDevice;
    return where;
}
static cudaMemLocation host_location() {
    cudaMemLocation where{};
    where.type = cudaMemLocationTypeHost;
    return where;
}

int main() {
    const int n = 100'000;
    const size_t bytes = n * sizeof(float);
    auto expected = check::random_floats(n);
    float* values = nullptr;
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaMallocManaged(reinterpret_cast<void**>(&values), bytes));
    std::copy(expected.begin(), expected.end(), values);

    CUDA_OK(cudaMemAdvise(values, bytes, cudaMemAdviseSetReadMostly, device_location()));
    CUDA_OK(cudaMemAdvise(values, bytes, cudaMemAdviseSetPreferredLocation, host_location()));
    int is = -1, where = -7;
    CUDA_OK(cudaMemRangeGetAttribute(&is, sizeof is, cudaMemRangeAttributeReadMostly, values, bytes));
    EXPECT(is == 1);
    CUDA_OK(cudaMemRangeGetAttribute(&where, sizeof where, cudaMemRangeAttributePreferredLocation, values, bytes));
    EXPECT(where == cudaCpuDeviceId);
    CUDA_OK(cudaMemAdvise(values, bytes, cudaMemAdviseUnsetReadMostly, device_location()));
    CUDA_OK(cudaMemRangeGetAttribute(&is, sizeof is, cudaMemRangeAttributeReadMostly, values, bytes));
    EXPECT(is == 0);

    // There and back, between kernels that use it.
    int concurrent = 0;
    CUDA_OK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
    for (int round = 1; round <= 3; ++round) {
        auto to = round % 2 ? device_location() : host_location();
        auto result = cudaMemPrefetchAsync(values, bytes, to, 0, stream);
        if (concurrent || result != cudaErrorInvalidDevice) CUDA_OK(result);  // a GPU without it may refuse
        (void)cudaGetLastError();
        scale<<<8, 256, 0, stream>>>(values, n, float(round));
        CUDA_LAUNCHED();
        CUDA_OK(cudaStreamSynchronize(stream));
        for (int i = 0; i < n; ++i) expected[i] *= float(round);
        EXPECT_EQUAL(std::vector<float>(values, values + n), expected);
        values[round] += 1;
        expected[round] += 1;
    }

    void* parts[] = {values, values + n / 2};
    size_t sizes[] = {bytes / 2, bytes / 2}, first = 0;
    cudaMemLocation to = device_location();
    auto result = cudaMemPrefetchBatchAsync(parts, sizes, 2, &to, &first, 1, 0, stream);
    if (concurrent || result == cudaSuccess) CUDA_OK(result);
    (void)cudaGetLastError();
    scale<<<8, 256, 0, stream>>>(values, n, 2);
    CUDA_OK(cudaStreamSynchronize(stream));
    for (auto& one : expected) one *= 2;
    EXPECT_EQUAL(std::vector<float>(values, values + n), expected);

    EXPECT_ERROR(cudaMemAdvise(&is, sizeof is, cudaMemAdviseSetReadMostly, device_location()), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    CUDA_OK(cudaFree(values));
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
