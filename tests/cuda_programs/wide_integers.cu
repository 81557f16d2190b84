// Integers of 128 bits: products, quotients, remainders and shifts, for which nvcc has code of its own.
#include "check.hpp"

#include <cstdint>

using Wide = unsigned __int128;
using Signed = __int128;

constexpr int results = 6;

__host__ __device__ void compute(Wide a, Wide b, int shift, Wide* to) {
    to[0] = a * b;
    to[1] = a / b;
    to[2] = a % b;
    to[3] = static_cast<Wide>(static_cast<Signed>(a) / static_cast<Signed>(b));
    to[4] = static_cast<Wide>(static_cast<Signed>(a) % static_cast<Signed>(b));
    to[5] = static_cast<Wide>(static_cast<Signed>(a) >> shift) + (b << shift);
}

__global__ void compute_all(const Wide* a, const Wide* b, Wide* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) compute(a[i], b[i], i % 128, to + i * results);
}

int main() {
    constexpr int n = 1000;
    uint64_t state = 88172645463325252u;
    auto next = [&] {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    };
    std::vector<Wide> a(n), b(n), expected(n * results);
    for (int i = 0; i < n; ++i) {
        a[i] = (static_cast<Wide>(next()) << 64 | next()) >> (i / 8 % 128);
        b[i] = ((static_cast<Wide>(next()) << 64 | next()) >> (i % 128)) + 1;
        compute(a[i], b[i], i % 128, &expected[i * results]);
    }
    check::Array<Wide> device_a(a), device_b(b), got(n * results);
    compute_all<<<(n + 127) / 128, 128>>>(device_a.data, device_b.data, got.data, n);
    CUDA_LAUNCHED();
    auto host = got.host();
    for (int i = 0; i < n * results; ++i) EXPECT(host[i] == expected[i]);
    return check::finish();
}
