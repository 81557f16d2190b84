// Texture and surface objects: what they are made of, and that kernels get what the program has in hand.
#include <cstring>
#include <numeric>

#include "arrays.hpp"

using namespace driver_api;

TEST_CASE("kernels write through a surface and read through a texture", "[texture]") {
    Gpu gpu;
    Module module;
    Array array(described(8, 4, 0, CUDA_ARRAY3D_SURFACE_LDST));
    auto resource = resource_of(array);
    auto how = sampled();
    CUsurfObject surface = 0;
    CUtexObject texture = 0;
    CU_OK(cu.cuSurfObjectCreate(&surface, &resource));
    CU_OK(cu.cuTexObjectCreate(&texture, &resource, &how, nullptr));
    Memory result(128);
    struct Hidden {
        int unused;
        CUsurfObject surface;
    } hidden{0, surface};
    CU_OK(launch_shaped(module.function("write_surface"), 4, 8, 0, nullptr, hidden, 100));
    CU_OK(launch_shaped(module.function("read_texture"), 4, 8, 0, nullptr, texture, result.address, 8));
    auto got = result.read<float>(32);
    for (size_t i = 0; i < 32; ++i) {
        const size_t row = i / 8, column = i % 8;
        CHECK(got[i] == float(100 + 10 * row + column));
    }
    CU_OK(cu.cuTexObjectDestroy(texture));
    CU_OK(cu.cuSurfObjectDestroy(surface));
    CU_CHECK(cu.cuTexObjectGetResourceDesc(&resource, texture), CUDA_ERROR_INVALID_VALUE);
    // What is gone, or never was, may be destroyed.
    CU_OK(cu.cuTexObjectDestroy(texture));
    CU_OK(cu.cuSurfObjectDestroy(surface));
    CU_OK(cu.cuTexObjectDestroy(0));
    CU_OK(cu.cuSurfObjectDestroy(0));
}

TEST_CASE("a texture shows what it was made from", "[texture]") {
    Gpu gpu;
    Array array(described(8, 4));
    auto resource = resource_of(array);
    auto how = sampled(CU_TR_ADDRESS_MODE_MIRROR, CU_TR_FILTER_MODE_LINEAR, CU_TRSF_NORMALIZED_COORDINATES);
    CUDA_RESOURCE_VIEW_DESC view{};
    view.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
    view.width = 8, view.height = 4;
    CUtexObject texture = 0;
    CU_OK(cu.cuTexObjectCreate(&texture, &resource, &how, &view));
    CUDA_RESOURCE_DESC shown{};
    CUDA_TEXTURE_DESC shown_how{};
    CUDA_RESOURCE_VIEW_DESC shown_view{};
    CU_OK(cu.cuTexObjectGetResourceDesc(&shown, texture));
    CU_OK(cu.cuTexObjectGetTextureDesc(&shown_how, texture));
    CU_OK(cu.cuTexObjectGetResourceViewDesc(&shown_view, texture));
    CHECK(shown.res.array.hArray == array.handle);
    CHECK(shown_how.filterMode == CU_TR_FILTER_MODE_LINEAR);
    CHECK(shown_how.addressMode[1] == CU_TR_ADDRESS_MODE_MIRROR);
    CHECK(shown_view.format == CU_RES_VIEW_FORMAT_FLOAT_1X32);
    CHECK(shown_view.width == 8);
    CU_OK(cu.cuTexObjectDestroy(texture));
}

TEST_CASE("a texture that cannot be is refused", "[texture]") {
    Gpu gpu;
    Array array(described(8, 4));
    auto resource = resource_of(array);
    auto how = sampled();
    CUtexObject texture = 0;
    CU_CHECK(cu.cuTexObjectCreate(nullptr, &resource, &how, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuTexObjectCreate(&texture, nullptr, &how, nullptr), CUDA_ERROR_INVALID_VALUE);
    auto unknown = how;
    unknown.flags = 1u << 20;
    CU_CHECK(cu.cuTexObjectCreate(&texture, &resource, &unknown, nullptr), CUDA_ERROR_INVALID_VALUE);
    CUDA_RESOURCE_DESC linear{};
    linear.resType = CU_RESOURCE_TYPE_LINEAR;
    linear.res.linear = {0x1000, CU_AD_FORMAT_FLOAT, 1, 64};
    CU_CHECK(cu.cuTexObjectCreate(&texture, &linear, &how, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("pitched memory is read as a texture", "[texture]") {
    Gpu gpu;
    Module module;
    std::vector<float> values(64);
    std::iota(values.begin(), values.end(), 1.0f);
    Memory memory(values), result(48);
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D = {memory.address, CU_AD_FORMAT_FLOAT, 1, 6, 8, 32};
    auto how = sampled();
    CUtexObject texture = 0;
    CU_OK(cu.cuTexObjectCreate(&texture, &resource, &how, nullptr));
    CU_OK(launch_shaped(module.function("read_texture"), 2, 6, 0, nullptr, texture, result.address, 6));
    auto got = result.read<float>(12);
    for (size_t i = 0; i < 12; ++i) CHECK(got[i] == values[i / 6 * 8 + i % 6]);
    CU_OK(cu.cuTexObjectDestroy(texture));
}

TEST_CASE("a texture of memory may have no texels, and is zero then", "[texture]") {
    Gpu gpu;
    Module module;
    Memory memory(std::vector<float>(64, 5.0f)), result(std::vector<float>(4, 9.0f));
    auto how = sampled(CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_POINT, CU_TRSF_NORMALIZED_COORDINATES);
    CUtexObject texture = 0;
    CUDA_RESOURCE_DESC linear{};
    linear.resType = CU_RESOURCE_TYPE_LINEAR;
    linear.res.linear = {memory.address, CU_AD_FORMAT_FLOAT, 1, 0};
    CU_OK(cu.cuTexObjectCreate(&texture, &linear, &how, nullptr));
    CU_OK(cu.cuTexObjectDestroy(texture));
    linear.res.linear.devPtr = 0;
    CU_CHECK(cu.cuTexObjectCreate(&texture, &linear, &how, nullptr), CUDA_ERROR_INVALID_VALUE);
    for (auto [width, height] : {std::pair<size_t, size_t>{0, 8}, {8, 0}}) {
        CUDA_RESOURCE_DESC pitched{};
        pitched.resType = CU_RESOURCE_TYPE_PITCH2D;
        pitched.res.pitch2D = {memory.address, CU_AD_FORMAT_FLOAT, 1, width, height, 32};
        CU_OK(cu.cuTexObjectCreate(&texture, &pitched, &how, nullptr));
        CU_OK(launch_shaped(module.function("read_texture"), 2, 2, 0, nullptr, texture, result.address, 2));
        CHECK(result.read<float>(4) == std::vector<float>(4, 0.0f));
        CU_OK(cu.cuTexObjectDestroy(texture));
        pitched.res.pitch2D.devPtr = 0;
        CU_CHECK(cu.cuTexObjectCreate(&texture, &pitched, &how, nullptr), CUDA_ERROR_INVALID_VALUE);
    }
}

FRESH_PROCESS_TEST_CASE("a kernel that reads a texture that is none faults", "[texture][fault]") {
    Gpu gpu;
    Module module;
    Memory result(128);
    CU_OK(launch_shaped(module.function("read_texture"), 1, 1, 0, nullptr, CUtexObject{0xfffff0}, result.address, 1));
    CHECK(cu.cuCtxSynchronize() != CUDA_SUCCESS);
}
