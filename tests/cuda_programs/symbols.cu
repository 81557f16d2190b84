// Constant and global variables of the device, reached by name from the host.
#include "check.hpp"

__constant__ float coefficients[4];
__constant__ int initialised_constant = 17;
__device__ int counter = 5;
__device__ double table[100];

__global__ void evaluate(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value = 0;
    for (int k = 3; k >= 0; --k) value = value * x[i] + coefficients[k];
    y[i] = value;
    atomicAdd(&counter, initialised_constant);
    if (i < 100) table[i] *= 3;
}

int main() {
    const int n = 300;
    const float host_coefficients[4] = {1, -2, 0.5f, 3};
    CUDA_OK(cudaMemcpyToSymbol(coefficients, host_coefficients, sizeof(host_coefficients)));
    std::vector<double> host_table(100);
    for (int i = 0; i < 100; ++i) host_table[i] = i * 1.25;
    CUDA_OK(cudaMemcpyToSymbol(table, host_table.data(), 50 * sizeof(double)));
    CUDA_OK(cudaMemcpyToSymbol(table, &host_table[50], 50 * sizeof(double), 50 * sizeof(double)));
    auto x = check::random_floats(n);
    check::Array<float> device_x(x), y(n);
    evaluate<<<3, 128>>>(device_x.data, y.data, n);
    CUDA_LAUNCHED();

    auto result = y.host();
    for (int i = 0; i < n; ++i)
        EXPECT_NEAR(result[i], 1 - 2 * x[i] + 0.5f * x[i] * x[i] + 3 * x[i] * x[i] * x[i], 1e-5, i);
    int count = 0;
    CUDA_OK(cudaMemcpyFromSymbol(&count, counter, sizeof(count)));
    EXPECT(count == 5 + 17 * n);

    double* address = nullptr;
    size_t size = 0;
    CUDA_OK(cudaGetSymbolAddress(reinterpret_cast<void**>(&address), table));
    CUDA_OK(cudaGetSymbolSize(&size, table));
    EXPECT(size == 100 * sizeof(double));
    std::vector<double> got(100);
    CUDA_OK(cudaMemcpy(got.data(), address, size, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 100; ++i) EXPECT_NEAR(got[i], host_table[i] * 3, 0, i);
    return check::finish();
}
