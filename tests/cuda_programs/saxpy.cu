// y = a x + y, the first program everybody writes.
#include "check.hpp"

__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

int main() {
    const int n = 100'003;  // no multiple of the block size
    auto x = check::random_floats(n, 1), y = check::random_floats(n, 2);
    check::Array<float> device_x(x), device_y(y);
    saxpy<<<(n + 255) / 256, 256>>>(n, 2.5f, device_x.data, device_y.data);
    CUDA_LAUNCHED();
    auto result = device_y.host();
    for (int i = 0; i < n; ++i) EXPECT_NEAR(result[i], 2.5f * x[i] + y[i], 1e-6, i);
    return check::finish();
}
