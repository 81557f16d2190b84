// cudaLaunchKernelEx: the launch described by a struct, with attributes.
#include <cooperative_groups.h>

#include "check.hpp"

__global__ void scale(const float* in, float* out, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = factor * in[i];
}

__global__ void sum_all(const float* in, float* partial, float* sum, int n) {
    auto grid = cooperative_groups::this_grid();
    float mine = 0;
    for (int i = int(grid.thread_rank()); i < n; i += int(grid.size())) mine += in[i];
    partial[grid.thread_rank()] = mine;
    grid.sync();
    if (grid.thread_rank() != 0) return;
    for (unsigned i = 1; i < grid.size(); ++i) mine += partial[i];
    *sum = mine;
}

int main() {
    const int n = 1000;
    auto in = check::random_floats(n);
    check::Array<float> device_in(in), out(n), partial(128), sum(1);
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(8);
    config.blockDim = dim3(128);
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributePriority;
    attribute.val.priority = 0;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CUDA_OK(cudaLaunchKernelEx(&config, scale, (const float*)device_in.data, out.data, 3.0f, n));
    CUDA_OK(cudaStreamSynchronize(stream));
    auto scaled = out.host();
    for (int i = 0; i < n; ++i) EXPECT_NEAR(scaled[i], 3.0f * in[i], 0, i);

    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.gridDim = dim3(2);
    config.blockDim = dim3(64);
    CUDA_OK(cudaLaunchKernelEx(&config, sum_all, (const float*)device_in.data, partial.data, sum.data, n));
    CUDA_OK(cudaStreamSynchronize(stream));
    double expected = 0;
    for (float value : in) expected += value;
    EXPECT_NEAR(sum.host()[0], expected, 1e-2, 0);
    CUDA_OK(cudaStreamDestroy(stream));
    return check::finish();
}
