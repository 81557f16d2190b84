// Textures of block-compressed texels: arrays of 8 or 16 bytes a block, which a resource view shows as 4 by 4 texels each.
#include <cstdint>
#include <cstring>

#include "check.hpp"

constexpr int side = 8;  // texels; two blocks
using Texels = std::vector<float4>;

__global__ void fetch(cudaTextureObject_t texture, float4* out) {
    int x = threadIdx.x, y = threadIdx.y;
    out[y * side + x] = tex2D<float4>(texture, x + 0.5f, y + 0.5f);
}

__global__ void fetch_level(cudaTextureObject_t texture, float4* out, float level) {
    int x = threadIdx.x, y = threadIdx.y;
    out[y * side + x] = tex2DLod<float4>(texture, (x + 0.5f) / side, (y + 0.5f) / side, level);
}

// ---- what the formats mean, in whole numbers

uint64_t bits(const uint8_t* from, int first, int count) {
    uint64_t result = 0;
    for (int i = 0; i < count; ++i) result |= uint64_t(from[(first + i) / 8] >> (first + i) % 8 & 1) << i;
    return result;
}

float4 color_in(const uint8_t* block, int texel, bool punches) {
    int ends[2][3];
    unsigned raw[2];
    for (int i = 0; i < 2; ++i) {
        raw[i] = unsigned(bits(block, 16 * i, 16));
        ends[i][0] = int(raw[i] >> 11) * 255 / 31;
        ends[i][1] = int(raw[i] >> 5 & 63) * 255 / 63;
        ends[i][2] = int(raw[i] & 31) * 255 / 31;
    }
    int choice = int(bits(block, 32 + 2 * texel, 2));
    static const int thirds[4] = {0, 6, 2, 4}, halves[4] = {0, 6, 3, 0};
    bool three = punches && raw[0] <= raw[1];
    if (three && choice == 3) return {0, 0, 0, 0};
    float result[3];
    for (int i = 0; i < 3; ++i) {
        int share = three ? halves[choice] : thirds[choice];
        result[i] = float(ends[0][i] * (6 - share) + ends[1][i] * share) / 6 / 255;
    }
    return {result[0], result[1], result[2], 1};
}

float value_in(const uint8_t* block, int texel, bool negative) {
    int low = negative ? -127 : 0, high = negative ? 127 : 255;
    int ends[2];
    for (int i = 0; i < 2; ++i) ends[i] = negative ? std::max(int(int8_t(block[i])), -127) : block[i];
    int choice = int(bits(block, 16 + 3 * texel, 3));
    bool eight = negative ? int8_t(block[0]) > int8_t(block[1]) : block[0] > block[1];
    double value;
    if (choice < 2)
        value = ends[choice];
    else if (eight)
        value = (ends[0] * (8 - choice) + ends[1] * (choice - 1)) / 7.0;
    else if (choice < 6)
        value = (ends[0] * (6 - choice) + ends[1] * (choice - 1)) / 5.0;
    else
        value = choice == 6 ? low : high;
    return float(value / high);
}

float4 texel_in(cudaResourceViewFormat format, const uint8_t* block, int texel) {
    float4 color{0, 0, 0, 1};
    switch (format) {
        case cudaResViewFormatUnsignedBlockCompressed1:
            return color_in(block, texel, true);
        case cudaResViewFormatUnsignedBlockCompressed2:
            color = color_in(block + 8, texel, false);
            color.w = float(bits(block, 4 * texel, 4)) / 15;
            return color;
        case cudaResViewFormatUnsignedBlockCompressed3:
            color = color_in(block + 8, texel, false);
            color.w = value_in(block, texel, false);
            return color;
        case cudaResViewFormatUnsignedBlockCompressed4:
        case cudaResViewFormatSignedBlockCompressed4:
            color.x = value_in(block, texel, format == cudaResViewFormatSignedBlockCompressed4);
            return color;
        default:
            color.x = value_in(block, texel, format == cudaResViewFormatSignedBlockCompressed5);
            color.y = value_in(block + 8, texel, format == cudaResViewFormatSignedBlockCompressed5);
            return color;
    }
}

// ---- textures

struct Blocks {
    Blocks(cudaResourceViewFormat with_format, unsigned seed) : format(with_format) {
        bool small = format == cudaResViewFormatUnsignedBlockCompressed1 ||
                     format == cudaResViewFormatUnsignedBlockCompressed4 ||
                     format == cudaResViewFormatSignedBlockCompressed4;
        bytes = small ? 8 : 16;
        check::Random random{seed};
        for (int i = 0; i < 4 * bytes; ++i) data.push_back(uint8_t(random.bits()));
        // One of them in each order of the two ends.
        for (int i : {0, 1}) {
            uint8_t* ends = &data[size_t(i * bytes)];
            bool ordered = ends[0] > ends[1];
            if (bytes == 8 && ordered != (i == 0)) std::swap(ends[0], ends[1]);
        }
    }
    cudaChannelFormatDesc texel() const {
        return bytes == 8 ? cudaCreateChannelDesc<uint2>() : cudaCreateChannelDesc<uint4>();
    }
    float4 expected(int x, int y) const {
        return texel_in(format, &data[size_t((y / 4 * 2 + x / 4) * bytes)], y % 4 * 4 + x % 4);
    }

    cudaResourceViewFormat format;
    int bytes;
    std::vector<uint8_t> data;
};

cudaResourceViewDesc view_of(cudaResourceViewFormat format, int width, int height) {
    cudaResourceViewDesc view{};
    view.format = format;
    view.width = size_t(width), view.height = size_t(height);
    return view;
}

Texels result_of(const check::Array<float4>& out) {
    CUDA_LAUNCHED();
    CUDA_OK(cudaDeviceSynchronize());
    return out.host();
}

// A GPU may round what lies between the ends to 8 bits, or a little more coarsely.
constexpr double tolerance = 0.012;

void expect(float4 got, float4 wanted, size_t index, double within = tolerance) {
    EXPECT_NEAR(got.x, wanted.x, within, index);
    EXPECT_NEAR(got.y, wanted.y, within, index);
    EXPECT_NEAR(got.z, wanted.z, within, index);
    EXPECT_NEAR(got.w, wanted.w, within, index);
}

void all_texels(const Blocks& blocks) {
    auto texel = blocks.texel();
    cudaArray_t array;
    CUDA_OK(cudaMallocArray(&array, &texel, 2, 2));
    const size_t row = size_t(2 * blocks.bytes);
    CUDA_OK(cudaMemcpy2DToArray(array, 0, 0, blocks.data.data(), row, row, 2, cudaMemcpyHostToDevice));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how{};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    auto view = view_of(blocks.format, side, side);
    check::Array<float4> out(side * side);
    const dim3 threads(side, side);
    cudaTextureObject_t
        texture;  // NVIDIA's runtime has no filters for arrays of whole numbers, whatever they are seen as
    CUDA_OK(cudaCreateTextureObject(&texture, &resource, &how, &view));
    fetch<<<1, threads>>>(texture, out.data);
    auto got = result_of(out);
    for (int y = 0; y < side; ++y)
        for (int x = 0; x < side; ++x) expect(got[size_t(y * side + x)], blocks.expected(x, y), size_t(y * side + x));
    CUDA_OK(cudaDestroyTextureObject(texture));

    // Views that do not fit.
    cudaTextureObject_t none;
    auto other =
        blocks.bytes == 8 ? cudaResViewFormatUnsignedBlockCompressed3 : cudaResViewFormatUnsignedBlockCompressed1;
    auto wrong = view_of(other, side, side), small = view_of(blocks.format, 2, 2);
    EXPECT(cudaCreateTextureObject(&none, &resource, &how, &wrong) != cudaSuccess);
    EXPECT(cudaCreateTextureObject(&none, &resource, &how, &small) != cudaSuccess);
    (void)cudaGetLastError();
    CUDA_OK(cudaFreeArray(array));
}

// The second level is one block, of 4 by 4 texels.
void levels(const Blocks& blocks) {
    auto texel = blocks.texel();
    cudaMipmappedArray_t array;
    CUDA_OK(cudaMallocMipmappedArray(&array, &texel, make_cudaExtent(2, 2, 0), 2));
    for (unsigned level : {0u, 1u}) {
        cudaArray_t part;
        CUDA_OK(cudaGetMipmappedArrayLevel(&part, array, level));
        const size_t count = level == 0 ? 2 : 1, row = count * size_t(blocks.bytes);
        CUDA_OK(cudaMemcpy2DToArray(part, 0, 0, blocks.data.data(), row, row, count, cudaMemcpyHostToDevice));
    }
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = array;
    cudaTextureDesc how{};
    how.normalizedCoords = 1;
    how.maxMipmapLevelClamp = 1;
    auto view = view_of(blocks.format, side, side);
    view.lastMipmapLevel = 1;
    cudaTextureObject_t texture;
    CUDA_OK(cudaCreateTextureObject(&texture, &resource, &how, &view));
    check::Array<float4> out(side * side);
    fetch_level<<<1, dim3(side, side)>>>(texture, out.data, 1.0f);
    auto got = result_of(out);
    for (int y = 0; y < side; ++y)
        for (int x = 0; x < side; ++x)
            expect(got[size_t(y * side + x)], blocks.expected(x / 2, y / 2), size_t(y * side + x));
    CUDA_OK(cudaDestroyTextureObject(texture));
    CUDA_OK(cudaFreeMipmappedArray(array));
}

int main() {
    unsigned seed = 1;
    for (auto format : {cudaResViewFormatUnsignedBlockCompressed1, cudaResViewFormatUnsignedBlockCompressed2,
                        cudaResViewFormatUnsignedBlockCompressed3, cudaResViewFormatUnsignedBlockCompressed4,
                        cudaResViewFormatSignedBlockCompressed4, cudaResViewFormatUnsignedBlockCompressed5,
                        cudaResViewFormatSignedBlockCompressed5}) {
        Blocks blocks(format, ++seed);
        all_texels(blocks);
        levels(blocks);
    }
    return check::finish();
}
