// The other translation unit of separate_units.cu.
#include "separate_units.hpp"

#include <cuda_runtime.h>

__device__ int calls_elsewhere = 100;
__constant__ int weights_elsewhere[4];

__device__ int transform_elsewhere(int value) {
    return value * value + 11;
}

__global__ void negated(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = -transform_elsewhere(i);
}

void launch_elsewhere(int* out, int n) {
    negated<<<(n + 63) / 64, 64>>>(out, n);
}
