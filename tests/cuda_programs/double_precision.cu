// Double precision: arithmetic that must agree to the last bit, functions that must agree closely, and an atomic sum.
#include "check.hpp"

__global__ void compute(const double* in, double* exact, double* functions, double* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = in[i];
    exact[i] = fma(x, x, 1.0) / (x + 3.0) - sqrt(x);
    functions[i] = exp(-x) + log(x + 1) + sin(x) * cos(x) + pow(x + 0.5, 1.5) + erf(x) + tanh(x);
    atomicAdd(sum, floor(x * 1000));
}

int main() {
    const int n = 2000;
    check::Random random;
    std::vector<double> in(n);
    double total = 0;
    for (double& x : in) total += std::floor((x = random.unit() * 4) * 1000);
    check::Array<double> device_in(in), exact(n), functions(n), sum(std::vector<double>{0});
    compute<<<(n + 127) / 128, 128>>>(device_in.data, exact.data, functions.data, sum.data, n);
    CUDA_LAUNCHED();
    auto got_exact = exact.host(), got_functions = functions.host();
    for (int i = 0; i < n; ++i) {
        double x = in[i], quotient = std::fma(x, x, 1.0) / (x + 3.0);
        // The device's compiler may fuse nothing here: a division and a square root end in correctly rounded results.
        EXPECT_NEAR(got_exact[i], quotient - std::sqrt(x), 0, i);
        double expected = std::exp(-x) + std::log(x + 1) + std::sin(x) * std::cos(x) + std::pow(x + 0.5, 1.5) +
                          std::erf(x) + std::tanh(x);
        EXPECT_NEAR(got_functions[i], expected, 1e-13 * (1 + std::fabs(expected)), i);
    }
    EXPECT(sum.host()[0] == total);  // whole numbers: the order of adding does not matter
    return check::finish();
}
