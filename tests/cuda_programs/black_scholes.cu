// Option prices: the single-precision functions (exp, log, sqrt, erfc) and their fast approximations.
#include "check.hpp"

__device__ float normal(float x) {
    return 0.5f * erfcf(-x * 0.70710678f);
}

__global__ void price(const float* spot, const float* strike, float* call, float* fast, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float years = 1.5f, rate = 0.03f, volatility = 0.25f;
    float spread = volatility * sqrtf(years);
    float d1 = (logf(spot[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years) / spread;
    call[i] = spot[i] * normal(d1) - strike[i] * expf(-rate * years) * normal(d1 - spread);
    fast[i] = __expf(-__fdividef(spot[i], strike[i])) + __sinf(d1) * __cosf(d1) + __logf(spot[i]) + rsqrtf(strike[i]);
}

int main() {
    const int n = 3000;
    auto spot = check::random_floats(n, 3), strike = check::random_floats(n, 4);
    for (int i = 0; i < n; ++i) spot[i] = 5 + 25 * spot[i], strike[i] = 5 + 25 * strike[i];
    check::Array<float> device_spot(spot), device_strike(strike), call(n), fast(n);
    price<<<(n + 255) / 256, 256>>>(device_spot.data, device_strike.data, call.data, fast.data, n);
    CUDA_LAUNCHED();
    auto calls = call.host(), approximations = fast.host();
    for (int i = 0; i < n; ++i) {
        double s = spot[i], k = strike[i], spread = 0.25 * std::sqrt(1.5);
        double d1 = (std::log(s / k) + (0.03 + 0.5 * 0.0625) * 1.5) / spread;
        auto normal = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
        EXPECT_NEAR(calls[i], s * normal(d1) - k * std::exp(-0.045) * normal(d1 - spread), 2e-4, i);
        EXPECT_NEAR(approximations[i], std::exp(-s / k) + std::sin(d1) * std::cos(d1) + std::log(s) + 1 / std::sqrt(k),
                    1e-4, i);
    }
    return check::finish();
}
