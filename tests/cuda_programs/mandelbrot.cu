// The Mandelbrot set: every thread of a warp leaves the loop at its own time.
#include "check.hpp"

__host__ __device__ int escape(int column, int row, int width, int height, int most) {
    // Fixed point, so that host and device cannot round differently.
    const int one = 1 << 13;
    int cx = column * 3 * one / width - 2 * one, cy = row * 2 * one / height - one, x = 0, y = 0;
    for (int i = 0; i < most; ++i) {
        int xx = x * x / one, yy = y * y / one;
        if (xx + yy > 4 * one) return i;
        y = 2 * x * y / one + cy;
        x = xx - yy + cx;
    }
    return most;
}

__global__ void render(int* out, int width, int height, int most) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column < width && row < height) out[row * width + column] = escape(column, row, width, height, most);
}

int main() {
    const int width = 100, height = 60, most = 60;
    check::Array<int> out(width * height);
    render<<<dim3((width + 15) / 16, (height + 7) / 8), dim3(16, 8)>>>(out.data, width, height, most);
    CUDA_LAUNCHED();
    std::vector<int> expected(width * height);
    for (int i = 0; i < width * height; ++i) expected[i] = escape(i % width, i / width, width, height, most);
    EXPECT_EQUAL(out.host(), expected);
    return check::finish();
}
