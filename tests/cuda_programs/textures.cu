// Texture objects over arrays, linear and pitched memory: filters, address modes, normalized coordinates, formats,
// gathering. The CPU's samples follow the programming guide: weights have 8 fractional bits.
#include "check.hpp"

namespace {

constexpr int width = 37, height = 23;

struct Image {
    std::vector<float> texels;
    int width, height;
    float at(long x, long y) const { return texels[size_t(y * width + x)]; }
};

long settle(long index, long size, cudaTextureAddressMode mode) {
    if (mode == cudaAddressModeWrap) return ((index % size) + size) % size;
    if (mode == cudaAddressModeMirror) {
        long at = ((index % (2 * size)) + 2 * size) % (2 * size);
        return at < size ? at : 2 * size - 1 - at;
    }
    if (mode == cudaAddressModeClamp) return index < 0 ? 0 : index >= size ? size - 1 : index;
    return index < 0 || index >= size ? -1 : index;
}

float texel(const Image& image, long x, long y, cudaTextureAddressMode mode) {
    x = settle(x, image.width, mode), y = settle(y, image.height, mode);
    return x < 0 || y < 0 ? 0 : image.at(x, y);
}

float sample(const Image& image, float x, float y, const cudaTextureDesc& how) {
    double u = x, v = y;
    if (how.normalizedCoords) u *= image.width, v *= image.height;
    auto mode = how.addressMode[0];
    if (how.filterMode == cudaFilterModePoint) return texel(image, long(std::floor(u)), long(std::floor(v)), mode);
    long fixed_u = long(std::floor((u - 0.5) * 256 + 0.5)), fixed_v = long(std::floor((v - 0.5) * 256 + 0.5));
    long i = fixed_u >> 8, j = fixed_v >> 8;
    float a = float(fixed_u & 255) / 256, b = float(fixed_v & 255) / 256;
    return (1 - a) * (1 - b) * texel(image, i, j, mode) + a * (1 - b) * texel(image, i + 1, j, mode) +
           (1 - a) * b * texel(image, i, j + 1, mode) + a * b * texel(image, i + 1, j + 1, mode);
}

__global__ void sample_2d(cudaTextureObject_t texture, const float2* points, float* out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = tex2D<float>(texture, points[i].x, points[i].y);
}

__global__ void fetch_1d(cudaTextureObject_t texture, int4* out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = tex1Dfetch<int4>(texture, i);
}

__global__ void read_bytes(cudaTextureObject_t fractions, cudaTextureObject_t integers, float4* reals, uchar4* bytes) {
    int i = threadIdx.x;
    reals[i] = tex1D<float4>(fractions, i + 0.5f);
    bytes[i] = tex1D<uchar4>(integers, i + 0.5f);
}

__global__ void gather(cudaTextureObject_t texture, float4* out) {
    out[threadIdx.x] = tex2Dgather<float4>(texture, float(threadIdx.x) + 1, 3, 0);
}

cudaTextureDesc described(cudaTextureAddressMode mode, cudaTextureFilterMode filter, bool normalized) {
    cudaTextureDesc how{};
    for (auto& each : how.addressMode) each = mode;
    how.filterMode = filter;
    how.normalizedCoords = normalized;
    return how;
}

void compare_samples(const cudaResourceDesc& resource, const Image& image, const cudaTextureDesc& how) {
    cudaTextureObject_t texture = 0;
    CUDA_OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
    check::Random random;
    std::vector<float2> points(500);
    for (auto& point : points) {
        point = {random.unit() * 3 - 1, random.unit() * 3 - 1};
        if (!how.normalizedCoords) point.x *= width, point.y *= height;
    }
    check::Array<float2> input(points);
    check::Array<float> output(points.size());
    sample_2d<<<4, 128>>>(texture, input.data, output.data, int(points.size()));
    CUDA_LAUNCHED();
    auto got = output.host();
    // A GPU rounds coordinates once more than we do: a sample may be one step of its weight away.
    double tolerance = how.filterMode == cudaFilterModeLinear ? 2.5 / 256 : 0;
    for (size_t i = 0; i < points.size(); ++i)
        EXPECT_NEAR(got[i], sample(image, points[i].x, points[i].y, how), tolerance, i);
    cudaTextureDesc shown{};
    CUDA_OK(cudaGetTextureObjectTextureDesc(&shown, texture));
    EXPECT(shown.filterMode == how.filterMode && shown.addressMode[1] == how.addressMode[1]);
    CUDA_OK(cudaDestroyTextureObject(texture));
}

void all_ways(const cudaResourceDesc& resource, const Image& image) {
    for (auto filter : {cudaFilterModePoint, cudaFilterModeLinear}) {
        for (auto mode : {cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder})
            compare_samples(resource, image, described(mode, filter, true));
        compare_samples(resource, image, described(cudaAddressModeClamp, filter, false));
        compare_samples(resource, image, described(cudaAddressModeBorder, filter, false));
    }
}

void linear_memory() {
    std::vector<int4> values(300);
    for (int i = 0; i < 300; ++i) values[size_t(i)] = {i, -i, i * i, 7};
    check::Array<int4> memory(values), output(values.size());
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory.data;
    resource.res.linear.desc = cudaCreateChannelDesc<int4>();
    resource.res.linear.sizeInBytes = values.size() * sizeof(int4);
    cudaTextureObject_t texture = 0;
    cudaTextureDesc how{};
    CUDA_OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
    fetch_1d<<<3, 128>>>(texture, output.data, 300);
    CUDA_LAUNCHED();
    auto got = output.host();
    for (size_t i = 0; i < got.size(); ++i)
        EXPECT(got[i].x == values[i].x && got[i].y == values[i].y && got[i].z == values[i].z && got[i].w == 7);
    CUDA_OK(cudaDestroyTextureObject(texture));
}

void bytes() {
    std::vector<uchar4> values(32);
    for (unsigned i = 0; i < 32; ++i) values[i] = {uint8_t(i), uint8_t(8 * i), uint8_t(255 - i), 255};
    auto format = cudaCreateChannelDesc<uchar4>();
    cudaArray_t array = nullptr;
    CUDA_OK(cudaMallocArray(&array, &format, 32));
    CUDA_OK(cudaMemcpy2DToArray(array, 0, 0, values.data(), 32 * 4, 32 * 4, 1, cudaMemcpyHostToDevice));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    auto how = described(cudaAddressModeClamp, cudaFilterModePoint, false);
    cudaTextureObject_t fractions = 0, integers = 0;
    how.readMode = cudaReadModeNormalizedFloat;
    CUDA_OK(cudaCreateTextureObject(&fractions, &resource, &how, nullptr));
    how.readMode = cudaReadModeElementType;
    CUDA_OK(cudaCreateTextureObject(&integers, &resource, &how, nullptr));
    check::Array<float4> reals(32);
    check::Array<uchar4> whole(32);
    read_bytes<<<1, 32>>>(fractions, integers, reals.data, whole.data);
    CUDA_LAUNCHED();
    auto got = reals.host();
    auto got_bytes = whole.host();
    for (size_t i = 0; i < 32; ++i) {
        EXPECT_NEAR(got[i].y, values[i].y / 255.0, 1e-6, i);
        EXPECT_NEAR(got[i].z, values[i].z / 255.0, 1e-6, i);
        EXPECT(got_bytes[i].x == values[i].x && got_bytes[i].z == values[i].z && got_bytes[i].w == 255);
    }
    CUDA_OK(cudaDestroyTextureObject(fractions));
    CUDA_OK(cudaDestroyTextureObject(integers));
    CUDA_OK(cudaFreeArray(array));
}

void gathering(const Image& image) {
    auto format = cudaCreateChannelDesc<float>();
    cudaArray_t array = nullptr;
    CUDA_OK(cudaMallocArray(&array, &format, width, height, cudaArrayTextureGather));
    CUDA_OK(
        cudaMemcpy2DToArray(array, 0, 0, image.texels.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    auto how = described(cudaAddressModeClamp, cudaFilterModePoint, false);
    cudaTextureObject_t texture = 0;
    CUDA_OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
    check::Array<float4> output(16);
    gather<<<1, 16>>>(texture, output.data);
    CUDA_LAUNCHED();
    auto got = output.host();
    for (int i = 0; i < 16; ++i)  // around (i + 1, 3): columns i and i + 1, rows 2 and 3
        EXPECT(got[size_t(i)].x == image.at(i, 3) && got[size_t(i)].y == image.at(i + 1, 3) &&
               got[size_t(i)].z == image.at(i + 1, 2) && got[size_t(i)].w == image.at(i, 2));
    CUDA_OK(cudaDestroyTextureObject(texture));
    CUDA_OK(cudaFreeArray(array));
}

}  // namespace

int main() {
    Image image{check::random_floats(width * height), width, height};
    auto format = cudaCreateChannelDesc<float>();
    cudaResourceDesc resource{};

    cudaArray_t array = nullptr;
    CUDA_OK(cudaMallocArray(&array, &format, width, height));
    CUDA_OK(
        cudaMemcpy2DToArray(array, 0, 0, image.texels.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    all_ways(resource, image);
    CUDA_OK(cudaFreeArray(array));

    void* pitched = nullptr;
    size_t pitch = 0;
    CUDA_OK(cudaMallocPitch(&pitched, &pitch, width * 4, height));
    CUDA_OK(cudaMemcpy2D(pitched, pitch, image.texels.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D = {pitched, format, width, height, pitch};
    all_ways(resource, image);
    CUDA_OK(cudaFree(pitched));

    linear_memory();
    bytes();
    gathering(image);
    return check::finish();
}
