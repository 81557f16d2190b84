// Half precision: conversions both ways for every bit pattern, arithmetic on pairs, and fused multiply-add.
#include <cuda_fp16.h>

#include <cstring>

#include "check.hpp"

__global__ void widen(float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = __half2float(__ushort_as_half((unsigned short)i));
}

__global__ void narrow(const float* in, unsigned short* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = __half_as_ushort(__float2half_rn(in[i]));
}

__global__ void arithmetic(const __half2* a, const __half2* b, __half2* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = __hfma2(a[i], b[i], __hsub2(__hadd2(a[i], b[i]), __float2half2_rn(0.5f)));
}

int main() {
    const int patterns = 65'536;
    check::Array<float> wide(patterns);
    check::Array<unsigned short> narrowed(patterns);
    widen<<<patterns / 256, 256>>>(wide.data);
    narrow<<<patterns / 256, 256>>>(wide.data, narrowed.data);
    CUDA_LAUNCHED();
    auto floats = wide.host();
    auto halves = narrowed.host();
    for (int i = 0; i < patterns; ++i) {
        int exponent = (i >> 10) & 31, fraction = i & 1023;
        if (exponent == 31) {  // infinities and NaNs
            EXPECT(fraction ? std::isnan(floats[i]) : std::isinf(floats[i]));
            continue;
        }
        double value = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
        EXPECT_NEAR(floats[i], i & 0x8000 ? -value : value, 0, i);
        EXPECT_NEAR(halves[i], i, 0, i);
    }

    const int n = 64;
    std::vector<__half2> a(n), b(n);
    for (int i = 0; i < n; ++i) {
        a[i] = __floats2half2_rn(i * 0.25f, -i);
        b[i] = __floats2half2_rn(2.f, 0.125f * i);
    }
    check::Array<__half2> device_a(a), device_b(b), out(n);
    arithmetic<<<1, n>>>(device_a.data, device_b.data, out.data, n);
    CUDA_LAUNCHED();
    auto result = out.host();
    for (int i = 0; i < n; ++i) {
        double x = i * 0.25, y = -i, u = 2, v = 0.125 * i;
        EXPECT_NEAR(__low2float(result[i]), x * u + x + u - 0.5, 0.02, i);
        double expected = y * v + y + v - 0.5;
        EXPECT_NEAR(__high2float(result[i]), expected, std::fabs(expected) / 512 + 0.02, i);
    }
    return check::finish();
}
