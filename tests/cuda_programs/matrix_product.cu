// A matrix product through tiles in shared memory, with sizes that are no multiple of the tile.
#include "check.hpp"

constexpr int tile = 16;

__global__ void product(const float* a, const float* b, float* c, int rows, int inner, int columns) {
    __shared__ float tile_a[tile][tile], tile_b[tile][tile];
    int row = blockIdx.y * tile + threadIdx.y, column = blockIdx.x * tile + threadIdx.x;
    float sum = 0;
    for (int start = 0; start < inner; start += tile) {
        int i = start + threadIdx.x, j = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < rows && i < inner ? a[row * inner + i] : 0;
        tile_b[threadIdx.y][threadIdx.x] = j < inner && column < columns ? b[j * columns + column] : 0;
        __syncthreads();
        for (int k = 0; k < tile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        __syncthreads();
    }
    if (row < rows && column < columns) c[row * columns + column] = sum;
}

int main() {
    const int rows = 70, inner = 90, columns = 50;
    auto a = check::random_floats(rows * inner, 1), b = check::random_floats(inner * columns, 2);
    check::Array<float> device_a(a), device_b(b), device_c(rows * columns);
    dim3 grid((columns + tile - 1) / tile, (rows + tile - 1) / tile);
    product<<<grid, dim3(tile, tile)>>>(device_a.data, device_b.data, device_c.data, rows, inner, columns);
    CUDA_LAUNCHED();
    auto c = device_c.host();
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
            double sum = 0;
            for (int k = 0; k < inner; ++k) sum += double(a[row * inner + k]) * b[k * columns + column];
            EXPECT_NEAR(c[row * columns + column], sum, 1e-4, row * columns + column);
        }
    return check::finish();
}
