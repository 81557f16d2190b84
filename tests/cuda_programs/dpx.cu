// The functions of dynamic programming (DPX) and SIMD in a word, by the hardware's instructions: the same functions on the
// host do without.
#include "check.hpp"

constexpr int results = 40;

__host__ __device__ void compute(int a, int b, int c, long long* out) {
    bool p = false, q = false;
    unsigned u = a, v = b, w = c;
    int k = 0;
    auto put = [&](long long value) { out[k++] = value * 4 + p * 2 + q; };
    put(__vimax_s32_relu(a, b)), put(__vimin_s32_relu(a, b));
    put(__vimax_s16x2_relu(u, v)), put(__vimin_s16x2_relu(u, v));
    put(__vimax3_s32(a, b, c)), put(__vimin3_s32(a, b, c)), put(__vimax3_u32(u, v, w)), put(__vimin3_u32(u, v, w));
    put(__vimax3_s16x2(u, v, w)), put(__vimin3_s16x2(u, v, w)), put(__vimax3_u16x2(u, v, w)),
        put(__vimin3_u16x2(u, v, w));
    put(__vimax3_s32_relu(a, b, c)), put(__vimin3_s32_relu(a, b, c));
    put(__vimax3_s16x2_relu(u, v, w)), put(__vimin3_s16x2_relu(u, v, w));
    put(__viaddmax_s32(a, b, c)), put(__viaddmin_s32(a, b, c)), put(__viaddmax_u32(u, v, w)),
        put(__viaddmin_u32(u, v, w));
    put(__viaddmax_s16x2(u, v, w)), put(__viaddmin_s16x2(u, v, w));
    put(__viaddmax_u16x2(u, v, w)), put(__viaddmin_u16x2(u, v, w));
    put(__viaddmax_s32_relu(a, b, c)), put(__viaddmin_s32_relu(a, b, c));
    put(__viaddmax_s16x2_relu(u, v, w)), put(__viaddmin_s16x2_relu(u, v, w));
    put(__vibmax_s32(a, b, &p)), put(__vibmin_s32(a, b, &p)), put(__vibmax_u32(u, v, &p)), put(__vibmin_u32(u, v, &p));
    put(__vibmax_s16x2(u, v, &p, &q)), put(__vibmin_s16x2(u, v, &p, &q));
    put(__vibmax_u16x2(u, v, &p, &q)), put(__vibmin_u16x2(u, v, &p, &q));
}

__global__ void compute_all(const int* a, const int* b, const int* c, long long* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    compute(a[i], b[i], c[i], out + i * results);
}

int main() {
    const int n = 1024;
    check::Random random;
    std::vector<int> a(n), b(n), c(n);
    for (int i = 0; i < n; ++i)
        for (auto* values : {&a, &b, &c}) {
            auto wide = random.bits() << 16 ^ random.bits();
            (*values)[i] = i % 3 == 0   ? static_cast<int>(wide)
                           : i % 3 == 1 ? static_cast<int>(wide % 7) - 3
                                        : static_cast<int>(wide & 0x00030003);
        }
    std::vector<long long> expected(n * results, 0);
    for (int i = 0; i < n; ++i) compute(a[i], b[i], c[i], &expected[i * results]);
    check::Array<long long> out(std::vector<long long>(n * results, 0));
    check::Array<int> device_a(a), device_b(b), device_c(c);
    compute_all<<<n / 128, 128>>>(device_a.data, device_b.data, device_c.data, out.data);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(out.host(), expected);
    return check::finish();
}
