// Mipmapped arrays made level by level through surfaces, sampled at, between and by the distance of levels; volumes
// with linear filters; layers and cubes.
#include "check.hpp"

namespace {

constexpr int size = 32, levels = 6;

__global__ void fill_level(cudaSurfaceObject_t surface, int side, float value) {
    if (int(threadIdx.x) < side) surf2Dwrite(value, surface, int(threadIdx.x * sizeof(float)), int(blockIdx.x));
}

__global__ void sample_levels(cudaTextureObject_t texture, float* out) {
    float level = threadIdx.x / 4.0f;
    out[threadIdx.x] = tex2DLod<float>(texture, 0.4f, 0.6f, level);
    // A step of 2^k texels is the distance of level k.
    float step = exp2f(level) / size;
    out[32 + threadIdx.x] = tex2DGrad<float>(texture, 0.4f, 0.6f, make_float2(step, 0), make_float2(0, step / 2));
}

__global__ void sample_volume(cudaTextureObject_t texture, const float4* points, float* out) {
    auto at = points[threadIdx.x];
    out[threadIdx.x] = tex3D<float>(texture, at.x, at.y, at.z);
}

__global__ void sample_layers(cudaTextureObject_t texture, float* out) {
    out[threadIdx.x] = tex1DLayered<float>(texture, threadIdx.x % 8 + 0.5f, int(threadIdx.x / 8) - 1);
}

__global__ void sample_cube(cudaTextureObject_t texture, const float4* directions, float* out) {
    auto at = directions[threadIdx.x];
    out[threadIdx.x] = texCubemap<float>(texture, at.x, at.y, at.z);
}

cudaTextureObject_t texture_of(cudaResourceDesc resource, cudaTextureFilterMode filter, bool normalized,
                               float last_level = 0) {
    cudaTextureDesc how{};
    for (auto& mode : how.addressMode) mode = cudaAddressModeClamp;
    how.filterMode = filter;
    how.mipmapFilterMode = cudaFilterModeLinear;
    how.maxMipmapLevelClamp = last_level;
    how.normalizedCoords = normalized;
    cudaTextureObject_t texture = 0;
    CUDA_OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
    return texture;
}
cudaTextureObject_t texture_of(cudaArray_t array, cudaTextureFilterMode filter, bool normalized) {
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return texture_of(resource, filter, normalized);
}

void mipmap() {
    auto format = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t mipmap = nullptr;
    CUDA_OK(
        cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(size, size, 0), levels, cudaArraySurfaceLoadStore));
    for (unsigned level = 0; level < levels; ++level) {
        cudaArray_t array = nullptr;
        CUDA_OK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
        cudaExtent extent{};
        CUDA_OK(cudaArrayGetInfo(nullptr, &extent, nullptr, array));
        EXPECT(extent.width == size_t(size >> level) && extent.height == size_t(size >> level));
        cudaResourceDesc resource{};
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
        cudaSurfaceObject_t surface = 0;
        CUDA_OK(cudaCreateSurfaceObject(&surface, &resource));
        fill_level<<<unsigned(size >> level), 32>>>(surface, size >> level, 10.0f * float(level));
        CUDA_LAUNCHED();
        CUDA_OK(cudaDestroySurfaceObject(surface));
    }
    cudaArray_t beyond = nullptr;
    EXPECT(cudaGetMipmappedArrayLevel(&beyond, mipmap, levels) != cudaSuccess);
    cudaGetLastError();
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mipmap;
    auto texture = texture_of(resource, cudaFilterModeLinear, true, levels - 1);
    check::Array<float> output(64);
    sample_levels<<<1, 32>>>(texture, output.data);
    CUDA_LAUNCHED();
    auto got = output.host();
    for (size_t i = 0; i < 32; ++i) {
        double expected = 10.0 * std::fmin(double(i) / 4, levels - 1);
        EXPECT_NEAR(got[i], expected, 0.05, i);
        EXPECT_NEAR(got[32 + i], expected, 0.2, i);
    }
    CUDA_OK(cudaDestroyTextureObject(texture));
    CUDA_OK(cudaFreeMipmappedArray(mipmap));
}

void volume() {
    constexpr int x = 8, y = 6, z = 4;
    std::vector<float> values(x * y * z);
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = float(i % x) + 10 * float(i / x % y) + 100 * float(i / (x * y));
    auto format = cudaCreateChannelDesc<float>();
    cudaArray_t array = nullptr;
    CUDA_OK(cudaMalloc3DArray(&array, &format, make_cudaExtent(x, y, z)));
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(values.data(), x * 4, x, y);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(x, y, z);
    copy.kind = cudaMemcpyHostToDevice;
    CUDA_OK(cudaMemcpy3D(&copy));
    auto texture = texture_of(array, cudaFilterModeLinear, false);
    check::Random random;
    std::vector<float4> points(64);
    for (auto& point : points)
        point = {0.5f + random.unit() * (x - 1), 0.5f + random.unit() * (y - 1), 0.5f + random.unit() * (z - 1), 0};
    check::Array<float4> input(points);
    check::Array<float> output(points.size());
    sample_volume<<<1, 64>>>(texture, input.data, output.data);
    CUDA_LAUNCHED();
    auto got = output.host();
    for (size_t i = 0; i < points.size(); ++i)  // what is linear stays so: off by no more than the weights' rounding
        EXPECT_NEAR(got[i], points[i].x - 0.5 + 10 * (points[i].y - 0.5) + 100 * (points[i].z - 0.5), 111 / 256.0, i);
    CUDA_OK(cudaDestroyTextureObject(texture));
    CUDA_OK(cudaFreeArray(array));
}

void layers() {
    std::vector<float> values(8 * 3);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
    auto format = cudaCreateChannelDesc<float>();
    cudaArray_t array = nullptr;
    CUDA_OK(cudaMalloc3DArray(&array, &format, make_cudaExtent(8, 0, 3), cudaArrayLayered));
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(values.data(), 8 * 4, 8, 1);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(8, 1, 3);
    copy.kind = cudaMemcpyHostToDevice;
    CUDA_OK(cudaMemcpy3D(&copy));
    auto texture = texture_of(array, cudaFilterModePoint, false);
    check::Array<float> output(40);
    sample_layers<<<1, 40>>>(texture, output.data);
    CUDA_LAUNCHED();
    auto got = output.host();
    for (size_t i = 0; i < 40; ++i) {  // layers -1 to 3, of which 0 to 2 are there
        size_t layer = i < 8 ? 0 : i / 8 - 1;
        EXPECT_NEAR(got[i], double(i % 8 + 8 * std::min<size_t>(layer, 2)), 0, i);
    }
    CUDA_OK(cudaDestroyTextureObject(texture));
    CUDA_OK(cudaFreeArray(array));
}

void cube() {
    constexpr size_t side = 4;
    std::vector<float> values(side * side * 6);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i / (side * side)) * 100 + float(i % (side * side));
    auto format = cudaCreateChannelDesc<float>();
    cudaArray_t array = nullptr;
    CUDA_OK(cudaMalloc3DArray(&array, &format, make_cudaExtent(side, side, 6), cudaArrayCubemap));
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(values.data(), side * 4, side, side);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(side, side, 6);
    copy.kind = cudaMemcpyHostToDevice;
    CUDA_OK(cudaMemcpy3D(&copy));
    auto texture = texture_of(array, cudaFilterModePoint, true);
    // The guide's table of faces, one direction each, towards the texel in column 2 and row 1 or so.
    std::vector<float4> directions{{1, 0.2f, -0.2f, 0}, {-1, 0.2f, 0.2f, 0}, {0.2f, 1, -0.2f, 0},
                                   {0.2f, -1, 0.2f, 0}, {0.2f, 0.2f, 1, 0},  {-0.2f, 0.2f, -1, 0}};
    check::Array<float4> input(directions);
    check::Array<float> output(6);
    sample_cube<<<1, 6>>>(texture, input.data, output.data);
    CUDA_LAUNCHED();
    auto got = output.host();
    for (size_t face = 0; face < 6; ++face) EXPECT_NEAR(got[face], double(face * 100 + 1 * side + 2), 0, face);
    CUDA_OK(cudaDestroyTextureObject(texture));
    CUDA_OK(cudaFreeArray(array));
}

}  // namespace

int main() {
    mipmap();
    volume();
    layers();
    cube();
    return check::finish();
}
