// Arrays of video formats: in planes, each of which is an array, or packed.
#include <algorithm>

#include "arrays.hpp"

using namespace driver_api;

namespace {

constexpr unsigned for_video = CUDA_ARRAY3D_VIDEO_ENCODE_DECODE | CUDA_ARRAY3D_SURFACE_LDST;

struct Planar {
    CUarray_format format;
    unsigned bytes, planes, across, down;

    CUDA_ARRAY3D_DESCRIPTOR of(size_t width, size_t height, unsigned flags = for_video) const {
        return {width, height, 0, format, 3, flags};
    }
    size_t width(size_t whole, unsigned plane) const { return plane == 0 ? whole : whole / across; }
    size_t height(size_t whole, unsigned plane) const { return plane == 0 ? whole : whole / down; }
    unsigned channels(unsigned plane) const { return plane != 0 && planes == 2 ? 2 : 1; }
};
constexpr Planar in_planes[] = {{CU_AD_FORMAT_NV12, 1, 2, 2, 2},
                                {CU_AD_FORMAT_P010, 2, 2, 2, 2},
                                {CU_AD_FORMAT_P016, 2, 2, 2, 2},
                                {CU_AD_FORMAT_NV16, 1, 2, 2, 1},
                                {CU_AD_FORMAT_P210, 2, 2, 2, 1},
                                {CU_AD_FORMAT_P216, 2, 2, 2, 1},
                                {CU_AD_FORMAT_Y444_PLANAR8, 1, 3, 1, 1},
                                {CU_AD_FORMAT_Y444_PLANAR10, 2, 3, 1, 1},
                                {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 1, 2, 1, 1},
                                {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 2, 2, 1, 1}};

struct Packed {
    CUarray_format format;
    unsigned channels;
    size_t texel;  // bytes
};
constexpr Packed packed[] = {{CU_AD_FORMAT_YUY2, 2, 2},
                             {CU_AD_FORMAT_Y210, 2, 4},
                             {CU_AD_FORMAT_Y216, 2, 4},
                             {CU_AD_FORMAT_AYUV, 4, 4},
                             {CU_AD_FORMAT_Y410, 4, 4},
                             {CU_AD_FORMAT_Y416, 4, 8},
                             {CU_AD_FORMAT_UNORM_INT_101010_2, 4, 4}};

CUarray plane_of(CUarray array, unsigned index) {
    CUarray plane = nullptr;
    CU_OK(cu.cuArrayGetPlane(&plane, array, index));
    return plane;
}

std::vector<unsigned char> counting_bytes(unsigned first, size_t count) {
    std::vector<unsigned char> bytes(count);
    for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(first + i * 7 + i / 251);
    return bytes;
}

CUresult put(CUarray array, size_t row, size_t rows, const std::vector<unsigned char>& bytes) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = bytes.data(), copy.srcPitch = row;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = array;
    copy.WidthInBytes = row, copy.Height = rows;
    return cu.cuMemcpy2D(&copy);
}
CUresult get(CUarray array, size_t row, size_t rows, std::vector<unsigned char>& bytes) {
    CUDA_MEMCPY2D copy{};
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = bytes.data(), copy.dstPitch = row;
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY, copy.srcArray = array;
    copy.WidthInBytes = row, copy.Height = rows;
    return cu.cuMemcpy2D(&copy);
}

}  // namespace

TEST_CASE("planes of a video format are arrays of their own", "[array][video]") {
    Gpu gpu;
    for (auto& format : in_planes) {
        INFO("format " << format.format);
        Array array(format.of(32, 12));
        CUDA_ARRAY3D_DESCRIPTOR shown{};
        CU_OK(cu.cuArray3DGetDescriptor(&shown, array));
        CHECK(shown.Format == format.format);
        CHECK(shown.Width == 32);
        CHECK(shown.NumChannels == 3);
        CHECK(shown.Flags == for_video);
        CUarray plane = nullptr;
        for (unsigned index = 0; index < format.planes; ++index) {
            CU_OK(cu.cuArrayGetPlane(&plane, array, index));
            CU_OK(cu.cuArray3DGetDescriptor(&shown, plane));
            CHECK(shown.Format == (format.bytes == 1 ? CU_AD_FORMAT_UNSIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT16));
            CHECK(shown.NumChannels == format.channels(index));
            CHECK(shown.Width == format.width(32, index));
            CHECK(shown.Height == format.height(12, index));
            CHECK(shown.Depth == 0);
        }
        CU_CHECK(cu.cuArrayGetPlane(&plane, array, format.planes), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuArrayGetPlane(nullptr, array, 0), CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(cu.cuArrayGetPlane(&plane, plane_of(array, 0), 0), CUDA_ERROR_INVALID_VALUE);
    }
    CUarray plane = nullptr;
    CU_CHECK(cu.cuArrayGetPlane(&plane, nullptr, 0), CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("planes are copied one by one", "[array][video][copy]") {
    Gpu gpu;
    for (auto& format : in_planes) {
        INFO("format " << format.format);
        Array array(format.of(32, 12)), other(format.of(32, 12));
        std::vector<std::vector<unsigned char>> written;
        for (unsigned index = 0; index < format.planes; ++index) {
            const size_t row = format.width(32, index) * format.channels(index) * format.bytes;
            const size_t rows = format.height(12, index);
            written.push_back(counting_bytes(index * 31 + format.format, row * rows));
            CU_OK(put(plane_of(array, index), row, rows, written.back()));
            CU_CHECK(put(plane_of(array, index), row, rows + 1, counting_bytes(0, row * (rows + 1))),
                     CUDA_ERROR_INVALID_VALUE);
        }
        for (unsigned index = 0; index < format.planes; ++index) {
            const size_t row = format.width(32, index) * format.channels(index) * format.bytes;
            const size_t rows = format.height(12, index);
            CUDA_MEMCPY2D across{};
            across.srcMemoryType = across.dstMemoryType = CU_MEMORYTYPE_ARRAY;
            across.srcArray = plane_of(array, index), across.dstArray = plane_of(other, index);
            across.WidthInBytes = row, across.Height = rows;
            CU_OK(cu.cuMemcpy2D(&across));
            std::vector<unsigned char> out(row * rows);
            CU_OK(get(plane_of(other, index), row, rows, out));
            CHECK(out == written[index]);
        }
        CU_CHECK(put(array, 32, 12, counting_bytes(0, 32 * 12)), CUDA_ERROR_INVALID_VALUE);  // of which plane?
    }
}

TEST_CASE("kernels read and write planes", "[array][video][texture]") {
    Gpu gpu;
    Module module;
    Array array(in_planes[0].of(16, 8));
    std::vector<unsigned char> luma(16 * 8), colors(16 * 4);
    for (size_t i = 0; i < luma.size(); ++i) luma[i] = static_cast<unsigned char>(i);
    for (size_t i = 0; i < colors.size(); ++i) colors[i] = static_cast<unsigned char>(255 - i);
    CU_OK(put(plane_of(array, 0), 16, 8, luma));
    CU_OK(put(plane_of(array, 1), 16, 4, colors));
    auto how = sampled();
    CUtexObject of_luma = 0, of_colors = 0;
    CUsurfObject surface = 0;
    auto first = resource_of(plane_of(array, 0)), second = resource_of(plane_of(array, 1));
    CU_OK(cu.cuTexObjectCreate(&of_luma, &first, &how, nullptr));
    CU_OK(cu.cuTexObjectCreate(&of_colors, &second, &how, nullptr));
    CU_OK(cu.cuSurfObjectCreate(&surface, &second));
    Memory result(16 * 8 * sizeof(float));
    CU_OK(launch_shaped(module.function("read_texture"), 8, 16, 0, nullptr, of_luma, result.address, 16));
    auto got = result.read<float>(16 * 8);
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(luma[i] / 255.0f));
    CU_OK(launch_shaped(module.function("read_color"), 4, 8, 0, nullptr, of_colors, result.address, 8));
    got = result.read<float>(4 * 8 * 4);
    for (size_t i = 0; i < 4 * 8; ++i) {
        CHECK(got[4 * i] == Approx(colors[2 * i] / 255.0f));
        CHECK(got[4 * i + 1] == Approx(colors[2 * i + 1] / 255.0f));
    }
    struct Hidden {
        int unused;
        CUsurfObject surface;
    } hidden{0, surface};
    CU_OK(launch_shaped(module.function("write_surface"), 4, 4, 0, nullptr, hidden,
                        100));  // four floats of a row's 16 bytes
    std::vector<unsigned char> out(colors.size());
    CU_OK(get(plane_of(array, 1), 16, 4, out));
    const auto* floats = reinterpret_cast<const float*>(out.data());
    for (size_t i = 0; i < 16; ++i) {
        const size_t row = i / 4, column = i % 4;
        CHECK(floats[i] == float(100 + 10 * row + column));
    }
    CU_OK(cu.cuSurfObjectDestroy(surface));
    CU_OK(cu.cuTexObjectDestroy(of_colors));
    CU_OK(cu.cuTexObjectDestroy(of_luma));
}

TEST_CASE("planes go with their array", "[array][video]") {
    Gpu gpu;
    CUarray array = nullptr;
    const auto description = in_planes[0].of(64, 64);
    CU_OK(cu.cuArray3DCreate(&array, &description));
    auto plane = plane_of(array, 1);
    CHECK(plane == plane_of(array, 1));
    CU_OK(cu.cuArrayDestroy(plane));  // of no effect
    CU_OK(put(plane, 64, 32, counting_bytes(0, 64 * 32)));
    CU_OK(cu.cuArrayDestroy(array));
    CUDA_ARRAY3D_DESCRIPTOR shown{};
    CU_CHECK(cu.cuArray3DGetDescriptor(&shown, plane), CUDA_ERROR_INVALID_HANDLE);
    CU_CHECK(put(plane, 64, 32, counting_bytes(0, 64 * 32)), CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("packed video formats are copied texel by texel", "[array][video][copy]") {
    Gpu gpu;
    for (auto& format : packed) {
        INFO("format " << format.format);
        Array array(
            CUDA_ARRAY3D_DESCRIPTOR{10, 6, 0, format.format, format.channels, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE});
        const size_t row = 10 * format.texel;
        const auto in = counting_bytes(format.format, 6 * row);
        std::vector<unsigned char> out(in.size());
        CU_OK(put(array, row, 6, in));
        CU_OK(get(array, row, 6, out));
        CHECK(out == in);
        CU_CHECK(put(array, row + format.texel, 6, counting_bytes(0, 6 * (row + format.texel))),
                 CUDA_ERROR_INVALID_VALUE);
        CUarray plane = nullptr;
        CU_CHECK(cu.cuArrayGetPlane(&plane, array, 0), CUDA_ERROR_INVALID_VALUE);
    }
}

TEST_CASE("an array of a video format that cannot be is refused", "[array][video]") {
    Gpu gpu;
    CUarray array = nullptr;
    auto refused = [&](CUDA_ARRAY3D_DESCRIPTOR description) { return cu.cuArray3DCreate(&array, &description); };
    CU_CHECK(refused(in_planes[0].of(31, 12)), CUDA_ERROR_INVALID_VALUE);  // no half of it
    CU_CHECK(refused(in_planes[0].of(32, 11)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(refused(in_planes[3].of(31, 12)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(refused(in_planes[0].of(32, 0)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(refused(in_planes[0].of(size_t{1} << 40, 12)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(refused({32, 12, 0, CU_AD_FORMAT_NV12, 5, for_video}), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(refused({32, 12, 2, CU_AD_FORMAT_NV12, 3, for_video}), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(refused({32, 12, 2, CU_AD_FORMAT_UNSIGNED_INT8, 1, for_video}), CUDA_ERROR_INVALID_VALUE);
    Array colors(
        CUDA_ARRAY3D_DESCRIPTOR{32, 11, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, for_video});  // as encoders take them
    Array odd(in_planes[6].of(31, 11));                                                 // all planes alike
    CUDA_ARRAY_DESCRIPTOR flat{32, 12, CU_AD_FORMAT_NV12, 3};
    CU_OK(cu.cuArrayCreate(&array, &flat));
    CU_OK(cu.cuArrayDestroy(array));
    auto mipmapped = in_planes[0].of(32, 12);
    CUmipmappedArray levels = nullptr;
    CU_CHECK(cu.cuMipmappedArrayCreate(&levels, &mipmapped, 2), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("an array in planes takes the memory of all of them", "[array][video][full]") {
    Gpu gpu;
    size_t before = 0, between = 0, after = 0, total = 0;
    CU_OK(cu.cuMemGetInfo(&before, &total));
    {
        Array large(in_planes[8].of(8192, 8192));  // a plane of 64 MiB and one of 128
        CU_OK(cu.cuMemGetInfo(&between, &total));
    }
    CU_OK(cu.cuMemGetInfo(&after, &total));
    CHECK(between + (size_t{192} << 20) <= before);
    CHECK(after >= between + (size_t{192} << 20));
}
