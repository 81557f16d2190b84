// wmma: a tiled product on tensor cores for each of their element types, against one on the CPU.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <type_traits>
#include <vector>

#include "check.hpp"

using namespace nvcuda;

// What a fragment holds of an element that lies in memory as another type.
template <class T>
struct Stored {
    using type = T;
};
template <>
struct Stored<wmma::precision::tf32> {
    using type = float;
};

// A warp for each tile of C. A is row-major, B column-major; C is doubled at the end, element by element.
template <class Element, class Sum, int M, int N, int K>
__global__ void product(const typename Stored<Element>::type* a, const typename Stored<Element>::type* b, Sum* c,
                        int columns, int depth) {
    int row = static_cast<int>(blockIdx.y) * M, column = static_cast<int>(blockIdx.x) * N;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    wmma::fill_fragment(sum, static_cast<Sum>(0));
    for (int k = 0; k < depth; k += K) {
        wmma::fragment<wmma::matrix_a, M, N, K, Element, wmma::row_major> left;
        wmma::fragment<wmma::matrix_b, M, N, K, Element, wmma::col_major> right;
        wmma::load_matrix_sync(left, a + row * depth + k, depth);
        wmma::load_matrix_sync(right, b + column * depth + k, depth);
        if constexpr (std::is_same_v<Element, wmma::precision::tf32>)
            for (int i = 0; i < left.num_elements; ++i) left.x[i] = wmma::__float_to_tf32(left.x[i]);
        wmma::mma_sync(sum, left, right, sum);
    }
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] + sum.x[i];
    wmma::store_matrix_sync(c + row * columns + column, sum, columns, wmma::mem_row_major);
}

template <class Element, class Sum, int M, int N, int K>
void try_one() {
    using Value = typename Stored<Element>::type;
    constexpr int rows = 2 * M, columns = 2 * N, depth = 4 * K;
    std::vector<Value> a(rows * depth), b(columns * depth);
    for (int i = 0; i < rows * depth; ++i) a[i] = static_cast<Value>(static_cast<float>(i * 7 % 8));
    for (int i = 0; i < columns * depth; ++i) b[i] = static_cast<Value>(static_cast<float>(i * 5 % 4));
    check::Array<Value> device_a(a), device_b(b);
    check::Array<Sum> device_c(std::vector<Sum>(rows * columns));
    product<Element, Sum, M, N, K>
        <<<dim3(columns / N, rows / M), 32>>>(device_a.data, device_b.data, device_c.data, columns, depth);
    CUDA_LAUNCHED();
    auto c = device_c.host();
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) {
            double expected = 0;
            for (int k = 0; k < depth; ++k)
                expected += 2.0 * static_cast<float>(a[i * depth + k]) * static_cast<float>(b[j * depth + k]);
            EXPECT_NEAR(static_cast<double>(c[i * columns + j]), expected, 0.0, i * columns + j);
        }
}

int main() {
    try_one<__half, float, 16, 16, 16>();
    try_one<__half, __half, 16, 16, 16>();
    try_one<__half, float, 8, 32, 16>();
    try_one<__half, float, 32, 8, 16>();
    try_one<__nv_bfloat16, float, 16, 16, 16>();
    try_one<__nv_bfloat16, float, 32, 8, 16>();
    try_one<wmma::precision::tf32, float, 16, 16, 8>();
    try_one<double, double, 8, 8, 4>();
    try_one<signed char, int, 16, 16, 16>();
    try_one<unsigned char, int, 8, 32, 16>();
    return check::finish();
}
