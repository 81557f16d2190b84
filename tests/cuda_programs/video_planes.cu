// A picture as decoders of video leave it (NV12: brightness in one plane, both colors at half its size in another), made into
// RGB by a kernel that samples the planes, and one that a kernel writes into planes. By way of the driver and of the runtime.
#include <cuda.h>

#include <vector>

#include "check.hpp"

namespace {

constexpr int width = 64, height = 36;

__device__ unsigned char in_bytes(float value) {
    return static_cast<unsigned char>(fminf(fmaxf(value, 0), 255) + 0.5f);
}

__global__ void to_rgb(cudaTextureObject_t brightness, cudaTextureObject_t colors, uchar4* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    float luma = 1.164f * (tex2D<unsigned char>(brightness, x + 0.5f, y + 0.5f) - 16);
    uchar2 uv = tex2D<uchar2>(colors, x / 2 + 0.5f, y / 2 + 0.5f);
    float u = uv.x - 128.0f, v = uv.y - 128.0f;
    out[y * width + x] = make_uchar4(in_bytes(luma + 1.596f * v), in_bytes(luma - 0.392f * u - 0.813f * v),
                                     in_bytes(luma + 2.017f * u), 255);
}

__global__ void turn(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int columns, int rows) {
    int x = threadIdx.x, y = blockIdx.x;
    if (x < columns) surf2Dwrite(surf2Dread<unsigned short>(from, x * 2, y), to, (columns - 1 - x) * 2, rows - 1 - y);
}

CUarray make(CUarray_format format) {
    CUDA_ARRAY3D_DESCRIPTOR described{};
    described.Width = width, described.Height = height, described.Format = format, described.NumChannels = 3;
    described.Flags = CUDA_ARRAY3D_VIDEO_ENCODE_DECODE | CUDA_ARRAY3D_SURFACE_LDST;
    CUarray array = nullptr;
    EXPECT(cuArray3DCreate(&array, &described) == CUDA_SUCCESS);
    return array;
}

cudaArray_t plane_of(CUarray array, unsigned index) {
    cudaArray_t plane = nullptr;
    CUDA_OK(cudaArrayGetPlane(&plane, reinterpret_cast<cudaArray_t>(array), index));
    return plane;
}

cudaResourceDesc resource_of(cudaArray_t plane) {
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = plane;
    return resource;
}

cudaTextureObject_t texture_of(cudaArray_t plane) {
    auto resource = resource_of(plane);
    cudaTextureDesc how{};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    cudaTextureObject_t texture = 0;
    CUDA_OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
    return texture;
}

cudaSurfaceObject_t surface_of(cudaArray_t plane) {
    auto resource = resource_of(plane);
    cudaSurfaceObject_t surface = 0;
    CUDA_OK(cudaCreateSurfaceObject(&surface, &resource));
    return surface;
}

void planes_to_rgb() {
    auto array = make(CU_AD_FORMAT_NV12);
    auto first = plane_of(array, 0), second = plane_of(array, 1);
    cudaChannelFormatDesc format{};
    cudaExtent extent{};
    unsigned flags = 0;
    CUDA_OK(cudaArrayGetInfo(&format, &extent, &flags, second));
    EXPECT(format.x == 8 && format.y == 8 && format.z == 0 && format.f == cudaChannelFormatKindUnsigned);
    EXPECT(extent.width == width / 2 && extent.height == height / 2 && extent.depth == 0);
    std::vector<unsigned char> picture(width * height * 3 / 2);
    for (size_t i = 0; i < picture.size(); ++i) picture[i] = static_cast<unsigned char>(16 + i * 13 % 220);
    const auto* colors = picture.data() + width * height;
    CUDA_OK(cudaMemcpy2DToArray(first, 0, 0, picture.data(), width, width, height, cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemcpy2DToArray(second, 0, 0, colors, width, width, height / 2, cudaMemcpyHostToDevice));
    auto of_first = texture_of(first), of_second = texture_of(second);
    check::Array<uchar4> rgb(width * height);
    to_rgb<<<dim3(2, height), 32>>>(of_first, of_second, rgb.data);
    auto got = rgb.host();
    for (int y = 0; y < height; ++y)
        for (int x = 0; x < width; ++x) {
            const auto* uv = colors + y / 2 * width + x / 2 * 2;
            float luma = 1.164f * (picture[y * width + x] - 16), u = uv[0] - 128.0f, v = uv[1] - 128.0f;
            auto within = [](float value) { return value < 0 ? 0 : value > 255 ? 255 : value; };
            const size_t at = size_t(y) * width + x;
            check::near(got[at].x, within(luma + 1.596f * v), 0.6, at, __LINE__);
            check::near(got[at].y, within(luma - 0.392f * u - 0.813f * v), 0.6, at, __LINE__);
            check::near(got[at].z, within(luma + 2.017f * u), 0.6, at, __LINE__);
        }
    CUDA_OK(cudaDestroyTextureObject(of_first));
    CUDA_OK(cudaDestroyTextureObject(of_second));
    EXPECT(cuArrayDestroy(array) == CUDA_SUCCESS);
}

// Of 16 bits: turned by half, plane by plane. A pair of colors is turned as one, so they change places.
void turned() {
    auto from = make(CU_AD_FORMAT_P016), to = make(CU_AD_FORMAT_P016);
    for (unsigned index = 0; index < 2; ++index) {
        const int rows = index == 0 ? height : height / 2;
        std::vector<unsigned short> values(size_t(width) * rows), got(values.size());
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned short>(i * 37 + index);
        const size_t row = width * sizeof(values[0]);
        auto source = plane_of(from, index), target = plane_of(to, index);
        CUDA_OK(cudaMemcpy2DToArray(source, 0, 0, values.data(), row, row, rows, cudaMemcpyHostToDevice));
        auto reads = surface_of(source), writes = surface_of(target);
        turn<<<rows, width>>>(reads, writes, width, rows);
        CUDA_OK(cudaMemcpy2DFromArray(got.data(), row, target, 0, 0, row, rows, cudaMemcpyDeviceToHost));
        check::equal(got, {values.rbegin(), values.rend()}, __LINE__);
        CUDA_OK(cudaDestroySurfaceObject(reads));
        CUDA_OK(cudaDestroySurfaceObject(writes));
    }
    EXPECT(cuArrayDestroy(from) == CUDA_SUCCESS);
    EXPECT(cuArrayDestroy(to) == CUDA_SUCCESS);
}

}  // namespace

int main() {
    CUDA_OK(cudaFree(nullptr));
    planes_to_rgb();
    turned();
    return check::finish();
}
