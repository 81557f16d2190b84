// Two translation units of device code, linked by nvcc (-rdc=true): a function, a variable and a constant of the other
// unit (separate_units_other.cu) are used here.
#include "check.hpp"
#include "separate_units.hpp"

__global__ void run(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = transform_elsewhere(i) + weights_elsewhere[i % 4];
    atomicAdd(&calls_elsewhere, 1);
}

int main() {
    const int n = 200;
    check::Array<int> out(n), other(n);
    const int weights[4] = {1000, 2000, 3000, 4000};
    CUDA_OK(cudaMemcpyToSymbol(weights_elsewhere, weights, sizeof(weights)));
    run<<<2, 128>>>(out.data, n);
    CUDA_LAUNCHED();
    std::vector<int> expected(n), expected_other(n);
    for (int i = 0; i < n; ++i) {
        expected[i] = i * i + 11 + weights[i % 4];
        expected_other[i] = -(i * i + 11);
    }
    EXPECT_EQUAL(out.host(), expected);
    launch_elsewhere(other.data, n);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(other.host(), expected_other);
    int calls = 0;
    CUDA_OK(cudaMemcpyFromSymbol(&calls, calls_elsewhere, sizeof(calls)));
    EXPECT(calls == 100 + n);
    return check::finish();
}
