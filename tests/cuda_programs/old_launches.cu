// Launches as programs for CUDA 1 to 3 make them: the block's shape, the shared memory and each parameter are said one by one.
#include <cuda.h>

#include "check.hpp"

#define DRIVER_OK(call) check::that((call) == CUDA_SUCCESS, #call, __LINE__)

__global__ void blend(const float* a, const float* b, float* to, int n, float weight) {
    extern __shared__ float both[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    both[threadIdx.x] = a[i] * weight;
    to[i] = both[threadIdx.x] + b[i] * (1 - weight);
}

int main() {
    const int n = 1000, block = 128;
    auto a = check::random_floats(n, 1), b = check::random_floats(n, 2);
    check::Array<float> here(a), there(b), to(n);
    cudaFunction_t function{};
    CUDA_OK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(blend)));
    auto kernel = reinterpret_cast<CUfunction>(function);
    int offset = 0;
    for (float* pointer : {here.data, there.data, to.data}) {
        DRIVER_OK(cuParamSetv(kernel, offset, &pointer, sizeof pointer));
        offset += int(sizeof pointer);
    }
    DRIVER_OK(cuParamSeti(kernel, offset, n));
    DRIVER_OK(cuParamSetSize(kernel, offset + 8));
    DRIVER_OK(cuFuncSetBlockShape(kernel, block, 1, 1));
    DRIVER_OK(cuFuncSetSharedSize(kernel, block * sizeof(float)));
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    for (float weight : {0.25f, 0.75f}) {
        DRIVER_OK(cuParamSetf(kernel, offset + 4, weight));  // the others stay said
        DRIVER_OK(cuLaunchGridAsync(kernel, (n + block - 1) / block, 1, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
        auto got = to.host();
        for (int i = 0; i < n; ++i) EXPECT_NEAR(got[i], a[i] * weight + b[i] * (1 - weight), 1e-6, i);
    }
    EXPECT(cuFuncSetBlockShape(kernel, 0, 1, 1) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchGrid(kernel, 0, 1) == CUDA_ERROR_INVALID_VALUE);
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
