// Two-dimensional copies: pitched memory, parts of images, copies within the device, three dimensions, 2D memset.
#include "check.hpp"

__global__ void add_position(int* cells, size_t pitch, int width, int height) {
    int x = threadIdx.x, y = blockIdx.x;
    if (x < width && y < height) reinterpret_cast<int*>(reinterpret_cast<char*>(cells) + y * pitch)[x] += 100 * y + x;
}

int main() {
    const int width = 33, height = 21;
    const size_t row = width * sizeof(int);
    std::vector<int> image(width * height), got(width * height, -1), expected(width * height);
    for (int i = 0; i < width * height; ++i) {
        image[i] = 7 * i;
        expected[i] = 7 * i + 100 * (i / width) + i % width;
    }
    int* cells = nullptr;
    size_t pitch = 0;
    CUDA_OK(cudaMallocPitch(&cells, &pitch, row, height));
    EXPECT(pitch >= row);
    CUDA_OK(cudaMemcpy2D(cells, pitch, image.data(), row, row, height, cudaMemcpyHostToDevice));
    add_position<<<height, 64>>>(cells, pitch, width, height);
    CUDA_OK(cudaMemcpy2D(got.data(), row, cells, pitch, row, height, cudaMemcpyDeviceToHost));
    EXPECT_EQUAL(got, expected);

    // A 5 x 4 window from (10, 3), packed on the device and then fetched.
    check::Array<int> window(20);
    CUDA_OK(cudaMemcpy2DAsync(window.data, 5 * sizeof(int),
                              reinterpret_cast<char*>(cells) + 3 * pitch + 10 * sizeof(int), pitch, 5 * sizeof(int), 4,
                              cudaMemcpyDeviceToDevice, nullptr));
    std::vector<int> window_expected;
    for (int y = 3; y < 7; ++y)
        for (int x = 10; x < 15; ++x) window_expected.push_back(expected[y * width + x]);
    EXPECT_EQUAL(window.host(), window_expected);

    CUDA_OK(cudaMemset2D(cells, pitch, 0, 8 * sizeof(int), height));  // clears the left 8 columns only
    CUDA_OK(cudaMemcpy2D(got.data(), row, cells, pitch, row, height, cudaMemcpyDeviceToHost));
    for (int i = 0; i < width * height; ++i) EXPECT_NEAR(got[i], i % width < 8 ? 0 : expected[i], 0, i);
    EXPECT_ERROR(cudaMemcpy2D(cells, 4, image.data(), row, row, height, cudaMemcpyHostToDevice),
                 cudaErrorInvalidPitchValue);
    cudaGetLastError();

    cudaPitchedPtr volume;
    cudaExtent extent = make_cudaExtent(row, 3, 7);  // the same 21 rows, as 7 slices of 3
    CUDA_OK(cudaMalloc3D(&volume, extent));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(image.data(), row, width, 3);
    copy.dstPtr = volume;
    copy.extent = extent;
    copy.kind = cudaMemcpyHostToDevice;
    CUDA_OK(cudaMemcpy3D(&copy));
    copy.srcPtr = volume;
    copy.dstPtr = make_cudaPitchedPtr(got.data(), row, width, 3);
    copy.kind = cudaMemcpyDeviceToHost;
    CUDA_OK(cudaMemcpy3D(&copy));
    EXPECT_EQUAL(got, image);
    CUDA_OK(cudaFree(cells));
    CUDA_OK(cudaFree(volume.ptr));
    return check::finish();
}
