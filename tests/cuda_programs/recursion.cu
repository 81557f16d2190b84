// Recursion on the device: call frames in local memory, to a different depth in every thread.
#include "check.hpp"

__host__ __device__ __noinline__ unsigned fibonacci(unsigned n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__host__ __device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

// The array lives in the frame: a callee must not overwrite it.
__host__ __device__ __noinline__ int permutations(int depth, unsigned used) {
    int order[4], found = 0;
    for (int i = 0; i < 4; ++i) order[i] = (used >> i) & 1;
    if (depth == 4) return 1;
    for (int i = 0; i < 4; ++i)
        if (!order[i]) found += permutations(depth + 1, used | 1u << i);
    return found + order[depth % 4] * 0;
}

__global__ void run(unsigned* out) {
    unsigned i = threadIdx.x;
    out[i] = fibonacci(i % 14) + 1000 * ackermann(2, i % 4) + 1'000'000 * permutations(0, 0);
}

int main() {
    const unsigned n = 32;
    CUDA_OK(cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10));
    check::Array<unsigned> out(n);
    run<<<1, n>>>(out.data);
    CUDA_LAUNCHED();
    std::vector<unsigned> expected(n);
    for (unsigned i = 0; i < n; ++i) expected[i] = fibonacci(i % 14) + 1000 * ackermann(2, i % 4) + 24'000'000;
    EXPECT_EQUAL(out.host(), expected);
    return check::finish();
}
