// The headers for floats of eight, six and four bits: conversions on the device, by their instructions, against the same headers'
// own arithmetic on the host.
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <cstring>

#include "check.hpp"

struct Codes {
    unsigned short power_up, power_down, e4m3, e5m2, e2m3, e3m2, e2m1;
};

__host__ __device__ Codes convert(float2 pair) {
    Codes codes;
    codes.power_up = __nv_cvt_float2_to_e8m0x2(pair, __NV_SATFINITE, cudaRoundPosInf);
    codes.power_down = __nv_cvt_float2_to_e8m0x2(pair, __NV_SATFINITE, cudaRoundZero);
    codes.e4m3 = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3);
    codes.e5m2 = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E5M2);
    codes.e2m3 = __nv_cvt_float2_to_fp6x2(pair, __NV_E2M3, cudaRoundNearest);
    codes.e3m2 = __nv_cvt_float2_to_fp6x2(pair, __NV_E3M2, cudaRoundNearest);
    codes.e2m1 = __nv_cvt_float2_to_fp4x2(pair, __NV_E2M1, cudaRoundNearest);
    return codes;
}

// All codes of four and six bits, and every power of two, back to wider floats.
struct Values {
    __half2_raw e2m1, e2m3, e3m2;
    __nv_bfloat162_raw power;
};

__host__ __device__ Values widen(unsigned code) {
    Values values;
    values.e2m1 = __nv_cvt_fp4x2_to_halfraw2(static_cast<__nv_fp4x2_storage_t>(code & 0xff), __NV_E2M1);
    values.e2m3 = __nv_cvt_fp6x2_to_halfraw2(static_cast<__nv_fp6x2_storage_t>(code & 0x3f3f), __NV_E2M3);
    values.e3m2 = __nv_cvt_fp6x2_to_halfraw2(static_cast<__nv_fp6x2_storage_t>(code & 0x3f3f), __NV_E3M2);
    values.power = __nv_cvt_e8m0x2_to_bf162raw(static_cast<__nv_fp8x2_storage_t>(code));
    return values;
}

__global__ void convert_all(const float2* in, Codes* out, Values* wide, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = convert(in[i]);
    wide[i] = widen(static_cast<unsigned>(i));
}

int main() {
    const int n = 1 << 16;
    std::vector<float2> in(n);
    for (int i = 0; i < n; ++i) {  // every exponent, some mantissas, both signs; NaN and infinity among them
        auto bits = static_cast<unsigned>(i) << 16 | static_cast<unsigned>(i % 3) << 15,
             other = 0x3f000000u + 977u * static_cast<unsigned>(i);
        std::memcpy(&in[i].x, &bits, 4);
        std::memcpy(&in[i].y, &other, 4);
    }
    check::Array<float2> device_in(in);
    check::Array<Codes> device_codes(n);
    check::Array<Values> device_values(n);
    convert_all<<<n / 256, 256>>>(device_in.data, device_codes.data, device_values.data, n);
    CUDA_LAUNCHED();
    auto codes = device_codes.host();
    auto values = device_values.host();
    for (int i = 0; i < n; ++i) {
        Codes code = convert(in[i]);
        EXPECT(codes[i].power_up == code.power_up && codes[i].power_down == code.power_down);
        EXPECT(codes[i].e4m3 == code.e4m3 && codes[i].e5m2 == code.e5m2);
        EXPECT(codes[i].e2m3 == code.e2m3 && codes[i].e3m2 == code.e3m2 && codes[i].e2m1 == code.e2m1);
        Values value = widen(static_cast<unsigned>(i));
        EXPECT(std::memcmp(&values[i], &value, sizeof value) == 0);
    }
    return check::finish();
}
