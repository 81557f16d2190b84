// Errors a program may recover from: bad launches, bad arguments, and what cudaGetLastError remembers.
#include "check.hpp"

#include <cstring>

__global__ void set(int* out) {
    *out = 42;
}

int main() {
    check::Array<int> out(1);
    set<<<1, 2048>>>(out.data);
    EXPECT_ERROR(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_ERROR(cudaGetLastError(), cudaSuccess);  // reading it cleared it
    set<<<0, 1>>>(out.data);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidConfiguration);
    set<<<1, dim3(1, 1, 65)>>>(out.data);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidConfiguration);
    set<<<1, 1, 1 << 20>>>(out.data);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);

    void* pointer = nullptr;
    EXPECT_ERROR(cudaMalloc(&pointer, size_t{1} << 60), cudaErrorMemoryAllocation);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_ERROR(cudaSetDevice(1000), cudaErrorInvalidDevice);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidDevice);
    int local = 0;
    EXPECT_ERROR(cudaFree(&local), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaMemcpy(&local, out.data, sizeof(int), static_cast<cudaMemcpyKind>(77)),
                 cudaErrorInvalidMemcpyDirection);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidMemcpyDirection);

    EXPECT(std::strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);
    EXPECT(std::strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);

    set<<<1, 1>>>(out.data);  // none of this broke anything
    CUDA_LAUNCHED();
    EXPECT(out.host()[0] == 42);
    return check::finish();
}
