// Kernels made from templates, with functors and lambdas as arguments: long mangled names, many kernels in one file.
#include "check.hpp"

template <class T, int Unroll, class Operation>
__global__ void transform(const T* in, T* out, int n, Operation operation) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * Unroll;
#pragma unroll
    for (int k = 0; k < Unroll; ++k)
        if (first + k < n) out[first + k] = operation(in[first + k]);
}

template <class T>
struct Polynomial {
    T a, b, c;
    __host__ __device__ T operator()(T x) const { return (a * x + b) * x + c; }
};

template <class T, int Unroll, class Operation>
void check_transform(Operation operation) {
    const int n = 1001;
    std::vector<T> in(n), expected(n);
    for (int i = 0; i < n; ++i) {
        in[i] = T(i % 11);
        expected[i] = operation(in[i]);
    }
    check::Array<T> device_in(in), out(n);
    transform<T, Unroll><<<(n + 64 * Unroll - 1) / (64 * Unroll), 64>>>(device_in.data, out.data, n, operation);
    CUDA_LAUNCHED();
    EXPECT_EQUAL(out.host(), expected);
}

int main() {
    check_transform<int, 1>(Polynomial<int>{2, -3, 4});
    check_transform<float, 2>(Polynomial<float>{0.5f, 2, -1});
    check_transform<double, 4>(Polynomial<double>{0.25, -2, 1});
    check_transform<unsigned char, 8>(Polynomial<unsigned char>{1, 1, 7});
    check_transform<long long, 3>(Polynomial<long long>{1ll << 40, 5, -9});
    check_transform<short, 2>(Polynomial<short>{3, -1, 2});
    int shift = 3;
    check_transform<int, 4>([shift] __host__ __device__(int x) { return (x << shift) ^ 5; });
    return check::finish();
}
