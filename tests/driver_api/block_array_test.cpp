// Arrays of block-compressed formats: described in texels, copied in blocks.
#include <algorithm>
#include <numeric>
#include <random>

#include "arrays.hpp"

using namespace driver_api;

namespace {

struct Format {
    CUarray_format format;
    unsigned channels;
    size_t block;  // bytes
};
constexpr Format formats[] = {
    {CU_AD_FORMAT_BC1_UNORM, 4, 8},       {CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 8}, {CU_AD_FORMAT_BC2_UNORM, 4, 16},
    {CU_AD_FORMAT_BC2_UNORM_SRGB, 4, 16}, {CU_AD_FORMAT_BC3_UNORM, 4, 16},     {CU_AD_FORMAT_BC3_UNORM_SRGB, 4, 16},
    {CU_AD_FORMAT_BC4_UNORM, 1, 8},       {CU_AD_FORMAT_BC4_SNORM, 1, 8},      {CU_AD_FORMAT_BC5_UNORM, 2, 16},
    {CU_AD_FORMAT_BC5_SNORM, 2, 16},      {CU_AD_FORMAT_BC6H_UF16, 3, 16},     {CU_AD_FORMAT_BC6H_SF16, 3, 16},
    {CU_AD_FORMAT_BC7_UNORM, 4, 16},      {CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 16}};

CUDA_ARRAY3D_DESCRIPTOR of_blocks(const Format& format, size_t width, size_t height, size_t depth = 0,
                                  unsigned flags = 0) {
    return {width, height, depth, format.format, format.channels, flags};
}

std::vector<unsigned char> bytes_from(unsigned first, size_t count) {
    std::vector<unsigned char> bytes(count);
    for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(first + i * 7 + i / 251);
    return bytes;
}

// The whole of a level: `across` by `down` blocks in each of `slices`.
CUDA_MEMCPY3D whole(CUarray array, size_t block, size_t across, size_t down, size_t slices) {
    CUDA_MEMCPY3D copy{};
    copy.srcArray = copy.dstArray = array;
    copy.WidthInBytes = across * block, copy.Height = down, copy.Depth = slices;
    return copy;
}
CUresult put(CUDA_MEMCPY3D copy, const std::vector<unsigned char>& bytes) {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = bytes.data(), copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcPitch = copy.WidthInBytes, copy.srcHeight = copy.Height;
    return cu.cuMemcpy3D(&copy);
}
CUresult get(CUDA_MEMCPY3D copy, std::vector<unsigned char>& bytes) {
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = bytes.data(), copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstPitch = copy.WidthInBytes, copy.dstHeight = copy.Height;
    return cu.cuMemcpy3D(&copy);
}

}  // namespace

TEST_CASE("an array of blocks is described in texels", "[array][blocks]") {
    Gpu gpu;
    for (auto& format : formats) {
        INFO("format " << format.format);
        Array array(of_blocks(format, 20, 12));
        CUDA_ARRAY_DESCRIPTOR flat{};
        CUDA_ARRAY3D_DESCRIPTOR shown{};
        CU_OK(cu.cuArrayGetDescriptor(&flat, array));
        CU_OK(cu.cuArray3DGetDescriptor(&shown, array));
        CHECK(flat.Width == 20);
        CHECK(flat.Height == 12);
        CHECK(shown.Format == format.format);
        CHECK(shown.NumChannels == format.channels);
        CUarray refused = nullptr;
        for (unsigned channels : {0u, 1u, 2u, 3u, 4u, 5u}) {
            auto other = of_blocks(format, 20, 12);
            other.NumChannels = channels;
            if (channels != format.channels) CU_CHECK(cu.cuArray3DCreate(&refused, &other), CUDA_ERROR_INVALID_VALUE);
        }
        auto line = of_blocks(format, 20, 0), surface = of_blocks(format, 20, 12, 0, CUDA_ARRAY3D_SURFACE_LDST);
        CU_CHECK(cu.cuArray3DCreate(&refused, &line), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuArray3DCreate(&refused, &surface), CUDA_ERROR_INVALID_VALUE);
        auto resource = resource_of(array);
        CUsurfObject written = 0;
        CU_CHECK(cu.cuSurfObjectCreate(&written, &resource), CUDA_ERROR_INVALID_VALUE);
    }
}

TEST_CASE("an array of blocks is copied block by block", "[array][blocks][copy]") {
    Gpu gpu;
    for (auto& format : formats) {
        INFO("format " << format.format);
        for (auto [width, height] : {std::pair<size_t, size_t>{20, 12}, {18, 9}}) {  // 5 by 3 blocks
            Array array(of_blocks(format, width, height));
            const size_t row = 5 * format.block;
            const auto in = bytes_from(format.format, 3 * row);
            std::vector<unsigned char> out(3 * row), part(2 * format.block);
            CU_OK(put(whole(array, format.block, 5, 3, 1), in));
            CU_OK(get(whole(array, format.block, 5, 3, 1), out));
            CHECK(out == in);
            CU_OK(cu.cuMemcpyAtoH(part.data(), array, format.block, 2 * format.block));
            CHECK(std::equal(part.begin(), part.end(), in.begin() + format.block));
            CUDA_MEMCPY2D box{};  // one block of the second row
            box.srcMemoryType = CU_MEMORYTYPE_ARRAY, box.srcArray = array, box.srcXInBytes = 4 * format.block;
            box.srcY = 1, box.WidthInBytes = format.block, box.Height = 1;
            box.dstMemoryType = CU_MEMORYTYPE_HOST, box.dstHost = part.data();
            CU_OK(cu.cuMemcpy2D(&box));
            CHECK(std::equal(part.begin(), part.begin() + format.block, in.begin() + row + 4 * format.block));
            box.srcY = 3;
            CU_CHECK(cu.cuMemcpy2D(&box), CUDA_ERROR_INVALID_VALUE);
            box.srcY = 1, box.srcXInBytes = 5 * format.block;
            CU_CHECK(cu.cuMemcpy2D(&box), CUDA_ERROR_INVALID_VALUE);
            CU_CHECK(get(whole(array, format.block, 5, 4, 1), out), CUDA_ERROR_INVALID_VALUE);
            CU_CHECK(get(whole(array, format.block, 6, 3, 1), out), CUDA_ERROR_INVALID_VALUE);
        }
    }
}

TEST_CASE("layers, slices, faces and levels of blocks", "[array][blocks][copy]") {
    Gpu gpu;
    const Format format = formats[GENERATE(0, 12)];
    struct Shape {
        size_t depth;
        unsigned flags;
    };
    for (auto [depth, flags] : {Shape{3, 0}, {3, CUDA_ARRAY3D_LAYERED}, {6, CUDA_ARRAY3D_CUBEMAP}}) {
        Array array(of_blocks(format, 16, 16, depth, flags));
        const auto in = bytes_from(flags, 16 * depth * format.block);
        std::vector<unsigned char> out(in.size());
        CU_OK(put(whole(array, format.block, 4, 4, depth), in));
        CU_OK(get(whole(array, format.block, 4, 4, depth), out));
        CHECK(out == in);
        CU_CHECK(get(whole(array, format.block, 4, 4, depth + 1), out), CUDA_ERROR_INVALID_VALUE);
    }
    CUmipmappedArray mipmap = nullptr;
    auto description = of_blocks(format, 24, 12);
    CU_OK(cu.cuMipmappedArrayCreate(&mipmap, &description, 9));
    constexpr size_t across[] = {6, 3, 2, 1, 1}, down[] = {3, 2, 1, 1, 1};  // 24 by 12, 12 by 6, 6 by 3, 3 by 1, 1 by 1
    std::vector<std::vector<unsigned char>> written;
    for (unsigned level = 0; level < 5; ++level) {
        CUarray array = nullptr;
        CU_OK(cu.cuMipmappedArrayGetLevel(&array, mipmap, level));
        written.push_back(bytes_from(level * 31, across[level] * down[level] * format.block));
        CU_OK(put(whole(array, format.block, across[level], down[level], 1), written.back()));
        CU_CHECK(put(whole(array, format.block, across[level], down[level] + 1, 1), bytes_from(0, 1024)),
                 CUDA_ERROR_INVALID_VALUE);
    }
    for (unsigned level = 0; level < 5; ++level) {
        CUarray array = nullptr;
        CUDA_ARRAY_DESCRIPTOR shown{};
        CU_OK(cu.cuMipmappedArrayGetLevel(&array, mipmap, level));
        CU_OK(cu.cuArrayGetDescriptor(&shown, array));
        CHECK(shown.Width == 24u >> level);
        std::vector<unsigned char> out(written[level].size());
        CU_OK(get(whole(array, format.block, across[level], down[level], 1), out));
        CHECK(out == written[level]);
    }
    CU_OK(cu.cuMipmappedArrayDestroy(mipmap));
}

TEST_CASE("an array of blocks takes the memory of its blocks", "[array][blocks][full]") {
    Gpu gpu;
    size_t before = 0, between = 0, after = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&before, &total));
    {
        Array large(of_blocks({CU_AD_FORMAT_BC7_UNORM, 4, 16}, 8192, 8192));  // 64 MiB; of texels it were 256
        CU_OK(cu.cuMemGetInfo(&between, &total));
    }
    CU_OK(cu.cuMemGetInfo(&after, &total));
    CHECK(between + (size_t{64} << 20) <= before);
    CHECK(between + (size_t{80} << 20) >= before);
    CHECK(after >= between + (size_t{64} << 20));
}

TEST_CASE("a texture shows the colors of an array of blocks", "[array][blocks][texture]") {
    Gpu gpu;
    Module module;
    Memory result(8 * 4 * 16);
    auto how = sampled();
    auto read = [&](CUarray array, const CUDA_RESOURCE_VIEW_DESC* view) {
        auto resource = resource_of(array);
        CUtexObject texture = 0;
        CU_OK(cu.cuTexObjectCreate(&texture, &resource, &how, view));
        CU_OK(launch_shaped(module.function("read_color"), 4, 8, 0, nullptr, texture, result.address, 8));
        auto values = result.read<float>(8 * 4 * 4);
        CU_OK(cu.cuTexObjectDestroy(texture));
        return values;
    };
    // All red; then white and black by turns, line by line.
    const std::vector<unsigned char> colors{0x00, 0xf8, 0x00, 0x00, 0,    0,    0,    0,
                                            0xff, 0xff, 0x00, 0x00, 0x00, 0x55, 0x00, 0x55};
    for (auto format : {CU_AD_FORMAT_BC1_UNORM, CU_AD_FORMAT_BC1_UNORM_SRGB}) {
        Array array(of_blocks({format, 4, 8}, 8, 4));
        CU_OK(put(whole(array, 8, 2, 1, 1), colors));
        auto values = read(array, nullptr);
        for (size_t y = 0; y < 4; ++y)
            for (size_t x = 0; x < 8; ++x) {
                const float* texel = &values[(y * 8 + x) * 4];
                const float other = y % 2 == 0 ? 1 : 0;
                CHECK(texel[0] == (x < 4 ? 1 : other));
                CHECK(texel[1] == (x < 4 ? 0 : other));
                CHECK(texel[2] == (x < 4 ? 0 : other));
                CHECK(texel[3] == 1);
            }
    }
    // A value between the ends, read as it is and as sRGB: half way between 0 and 1 of the first color's thirds.
    const std::vector<unsigned char> mean{0x00, 0x00, 0x00, 0xf8, 0xaa, 0xaa, 0xaa, 0xaa};
    std::vector<float> reds;
    for (auto format : {CU_AD_FORMAT_BC1_UNORM, CU_AD_FORMAT_BC1_UNORM_SRGB}) {
        Array array(of_blocks({format, 4, 8}, 4, 4));
        CU_OK(put(whole(array, 8, 1, 1, 1), mean));
        reds.push_back(read(array, nullptr)[0]);
    }
    CHECK(std::abs(reds[0] - 0.5f) < 0.01f);
    CHECK(std::abs(reds[1] - 0.214f) < 0.01f);
    Array values(of_blocks({CU_AD_FORMAT_BC4_SNORM, 1, 8}, 8, 4));
    std::vector<unsigned char> ends{0x7f, 0x81, 0, 0, 0, 0, 0, 0, 0x81, 0x7f, 0, 0, 0, 0, 0, 0};
    CU_OK(put(whole(values, 8, 2, 1, 1), ends));
    auto got = read(values, nullptr);
    CHECK(got[0] == 1);
    CHECK(got[16] == -1);
    CHECK(got[1] == 0);
    // A view has another format of the texels; blocks have none.
    CUDA_RESOURCE_VIEW_DESC view{};
    view.format = CU_RES_VIEW_FORMAT_UINT_4X8, view.width = 8, view.height = 4;
    auto resource = resource_of(values);
    CUtexObject texture = 0;
    CU_CHECK(cu.cuTexObjectCreate(&texture, &resource, &how, &view), CUDA_ERROR_INVALID_VALUE);
    view.format = CU_RES_VIEW_FORMAT_SIGNED_BC4;
    CU_CHECK(cu.cuTexObjectCreate(&texture, &resource, &how, &view), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a batch copies blocks, as many texels as it says", "[array][blocks][batch]") {
    Gpu gpu;
    Stream stream;
    Array one(of_blocks(formats[0], 16, 8)), other(of_blocks(formats[0], 16, 8));
    const auto in = bytes_from(3, 4 * 2 * 8);
    std::vector<unsigned char> out(4 * 2 * 8);
    CU_OK(put(whole(one, 8, 4, 2, 1), in));
    CU_OK(put(whole(other, 8, 4, 2, 1), std::vector<unsigned char>(out.size())));
    CUDA_MEMCPY3D_BATCH_OP operation{};
    operation.src.type = operation.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    operation.src.op.array.array = one, operation.dst.op.array.array = other;
    operation.src.op.array.offset = {4, 4, 0}, operation.dst.op.array.offset = {8, 0, 0};
    operation.extent = {8, 4, 1};
    operation.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CU_OK(cu.cuMemcpy3DBatchAsync(1, &operation, 0, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_OK(get(whole(other, 8, 4, 2, 1), out));
    std::vector<unsigned char> expected(out.size());
    std::copy_n(in.begin() + 5 * 8, 16, expected.begin() + 2 * 8);
    CHECK(out == expected);
    operation.src.op.array.offset = {2, 0, 0};
    CU_CHECK(cu.cuMemcpy3DBatchAsync(1, &operation, 0, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("whatever an array's description says, it is made or refused", "[array][blocks]") {
    Gpu gpu;
    std::mt19937 random(31);
    auto any = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
    unsigned made = 0;
    for (int i = 0; i < 400; ++i) {
        CUDA_ARRAY3D_DESCRIPTOR given{};
        auto& format = formats[any(std::size(formats))];
        given.Format = any(4) == 0 ? static_cast<CUarray_format>(any(256)) : format.format;
        given.NumChannels = any(4) == 0 ? any(6) : format.channels;
        given.Width = any(8) == 0 ? size_t{random()} << any(32) : any(70);
        given.Height = any(8) == 0 ? size_t{random()} << any(32) : any(70);
        given.Depth = any(2) == 0 ? 0 : any(8) == 0 ? size_t{random()} : any(13);
        given.Flags = any(3) == 0 ? any(1024) : any(2) * CUDA_ARRAY3D_LAYERED;
        if (given.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) continue;
        CAPTURE(i, given.Format, given.NumChannels, given.Width, given.Height, given.Depth, given.Flags);
        CUarray array = nullptr;
        const auto result = cu.cuArray3DCreate(&array, &given);
        if (result != CUDA_SUCCESS) {
            CHECK((result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED ||
                   result == CUDA_ERROR_OUT_OF_MEMORY));
            continue;
        }
        ++made;
        CUDA_ARRAY3D_DESCRIPTOR shown{};
        CU_OK(cu.cuArray3DGetDescriptor(&shown, array));
        CHECK(shown.Width == given.Width);
        CHECK(shown.Format == given.Format);
        if (given.Format == format.format && given.Height != 0) {
            const size_t across = (given.Width + 3) / 4, down = (given.Height + 3) / 4;
            const size_t slices = std::max<size_t>(given.Depth, 1);
            const auto box = whole(array, format.block, across, down, slices);
            const auto in = bytes_from(any(256), across * format.block * down * slices);
            std::vector<unsigned char> out(in.size());
            if (given.Width * given.Height * slices < 1 << 20) {
                CU_OK(put(box, in));
                CU_OK(get(box, out));
                CHECK(out == in);
            }
        }
        CU_OK(cu.cuArrayDestroy(array));
    }
    CHECK(made > 50);
}
