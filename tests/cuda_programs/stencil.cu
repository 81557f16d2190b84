// Heat spreading over a grid: a five-point stencil with halo cells in shared memory, two buffers taking turns.
#include "check.hpp"

#include <algorithm>

constexpr int tile = 16;

__global__ void step(const float* in, float* out, int width, int height) {
    __shared__ float cells[tile + 2][tile + 2];
    int x = blockIdx.x * tile + threadIdx.x, y = blockIdx.y * tile + threadIdx.y;
    auto at = [&](int column, int row) {
        return in[min(max(row, 0), height - 1) * width + min(max(column, 0), width - 1)];
    };
    int cx = threadIdx.x + 1, cy = threadIdx.y + 1;
    cells[cy][cx] = at(x, y);
    if (threadIdx.x == 0) cells[cy][0] = at(x - 1, y);
    if (threadIdx.x == tile - 1) cells[cy][tile + 1] = at(x + 1, y);
    if (threadIdx.y == 0) cells[0][cx] = at(x, y - 1);
    if (threadIdx.y == tile - 1) cells[tile + 1][cx] = at(x, y + 1);
    __syncthreads();
    if (x >= width || y >= height) return;
    float around = cells[cy][cx - 1] + cells[cy][cx + 1] + cells[cy - 1][cx] + cells[cy + 1][cx];
    out[y * width + x] = cells[cy][cx] + 0.2f * (around - 4 * cells[cy][cx]);
}

int main() {
    const int width = 96, height = 64, steps = 8;
    auto field = check::random_floats(width * height);
    check::Array<float> first(field), second(width * height);
    float *from = first.data, *to = second.data;
    for (int i = 0; i < steps; ++i, std::swap(from, to))
        step<<<dim3(width / tile, height / tile), dim3(tile, tile)>>>(from, to, width, height);
    CUDA_LAUNCHED();
    auto result = first.host();  // an even number of steps ends where it began

    std::vector<float> next(field.size());
    auto at = [&](int x, int y) { return field[std::clamp(y, 0, height - 1) * width + std::clamp(x, 0, width - 1)]; };
    for (int i = 0; i < steps; ++i, field.swap(next))
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x) {
                float around = at(x - 1, y) + at(x + 1, y) + at(x, y - 1) + at(x, y + 1);
                next[y * width + x] = at(x, y) + 0.2f * (around - 4 * at(x, y));
            }
    for (size_t i = 0; i < field.size(); ++i) EXPECT_NEAR(result[i], field[i], 1e-5, i);
    return check::finish();
}
