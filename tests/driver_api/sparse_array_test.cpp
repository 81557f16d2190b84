// Sparse arrays, and arrays that are mapped as a whole later.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "arrays.hpp"

using namespace driver_api;

namespace {

constexpr size_t tile_size = 64 << 10;  // bytes

// Memory for tiles; released at the end of the scope.
class TilePool {
public:
    explicit TilePool(size_t bytes, int device = 0, unsigned short usage = CU_MEM_CREATE_USAGE_TILE_POOL) {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
        properties.allocFlags.usage = usage;
        CU_OK(cu.cuMemCreate(&handle, bytes, &properties, 0));
    }
    ~TilePool() { release(); }
    TilePool(const TilePool&) = delete;
    TilePool& operator=(const TilePool&) = delete;
    void release() {
        if (handle) cu.cuMemRelease(handle);
        handle = 0;
    }

    CUmemGenericAllocationHandle handle = 0;
};
constexpr size_t pool_bytes = 2 << 20;

class SparseMipmap {
public:
    SparseMipmap(const CUDA_ARRAY3D_DESCRIPTOR& description, unsigned levels) {
        CU_OK(cu.cuMipmappedArrayCreate(&handle, &description, levels));
    }
    ~SparseMipmap() { cu.cuMipmappedArrayDestroy(handle); }
    SparseMipmap(const SparseMipmap&) = delete;
    SparseMipmap& operator=(const SparseMipmap&) = delete;
    CUarray level(unsigned index) const {
        CUarray array = nullptr;
        CU_OK(cu.cuMipmappedArrayGetLevel(&array, handle, index));
        return array;
    }

    CUmipmappedArray handle = nullptr;
};

struct TileRegion {
    unsigned x, y, z, width, height, depth, level = 0, layer = 0;
};

CUarrayMapInfo tiles_of(CUarray array) {
    CUarrayMapInfo info{};
    info.resourceType = CU_RESOURCE_TYPE_ARRAY;
    info.resource.array = array;
    info.deviceBitMask = 1;
    return info;
}
CUarrayMapInfo tiles_of(const SparseMipmap& mipmap) {
    CUarrayMapInfo info{};
    info.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    info.resource.mipmap = mipmap.handle;
    info.deviceBitMask = 1;
    return info;
}
CUarrayMapInfo tiles_at(CUarrayMapInfo info, const TileRegion& region) {
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    info.subresource.sparseLevel = {region.level, region.layer, region.x,      region.y,
                                    region.z,     region.width, region.height, region.depth};
    return info;
}
CUarrayMapInfo tail_of(CUarrayMapInfo info, size_t offset, size_t size, unsigned layer = 0) {
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
    info.subresource.miptail = {layer, offset, size};
    return info;
}
CUarrayMapInfo mapped_to(CUarrayMapInfo info, const TilePool& pool, size_t offset = 0) {
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = pool.handle;
    info.offset = offset;
    return info;
}
CUarrayMapInfo unmapped_from(CUarrayMapInfo info) {
    info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    return info;
}
CUresult change_tiles(CUarrayMapInfo info, CUstream stream = nullptr) {
    return cu.cuMemMapArrayAsync(&info, 1, stream);
}

CUDA_ARRAY3D_DESCRIPTOR sparse_shape(size_t width, size_t height, size_t depth = 0, unsigned flags = 0,
                                     unsigned channels = 1) {
    return described(width, height, depth, flags | CUDA_ARRAY3D_SPARSE, channels);
}

// The whole of a level, of floats, from or to the host.
CUDA_MEMCPY3D whole_level(CUarray array, size_t width, size_t height, size_t depth) {
    CUDA_MEMCPY3D copy{};
    copy.srcArray = copy.dstArray = array;
    copy.WidthInBytes = width * 4, copy.Height = height, copy.Depth = depth;
    return copy;
}
void put_level(CUarray array, size_t width, size_t height, size_t depth, const std::vector<float>& values) {
    auto copy = whole_level(array, width, height, depth);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = values.data(), copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcPitch = width * 4, copy.srcHeight = height;
    CU_OK(cu.cuMemcpy3D(&copy));
}
std::vector<float> get_level(CUarray array, size_t width, size_t height, size_t depth = 1) {
    std::vector<float> values(width * height * depth);
    auto copy = whole_level(array, width, height, depth);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = values.data(), copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstPitch = width * 4, copy.dstHeight = height;
    CU_OK(cu.cuMemcpy3D(&copy));
    return values;
}
std::vector<float> counted_floats(size_t count, float first = 1) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}
bool are_all(const std::vector<float>& values, float value) {
    return std::all_of(values.begin(), values.end(), [&](float each) { return each == value; });
}

}  // namespace

TEST_CASE("a sparse array says how its tiles are", "[array][sparse]") {
    Gpu gpu;
    CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED) == 1);
    CHECK(gpu.attribute(CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED) == 1);
    CUDA_ARRAY_SPARSE_PROPERTIES shown{};
    for (unsigned channels : {1, 2, 4}) {
        Array flat(sparse_shape(1024, 1024, 0, 0, channels)), deep(sparse_shape(128, 128, 64, 0, channels));
        for (auto* array : {&flat, &deep}) {
            CU_OK(cu.cuArrayGetSparseProperties(&shown, *array));
            CHECK(size_t{shown.tileExtent.width} * shown.tileExtent.height * shown.tileExtent.depth * channels * 4 ==
                  tile_size);
            CHECK(shown.miptailSize == 0);
            CHECK(shown.miptailFirstLevel == 0);
        }
    }
    CUDA_ARRAY3D_DESCRIPTOR blocks{1024, 1024, 0, CU_AD_FORMAT_BC1_UNORM, 4, CUDA_ARRAY3D_SPARSE};
    Array compressed(blocks);
    CU_OK(cu.cuArrayGetSparseProperties(&shown, compressed));
    CHECK(size_t{shown.tileExtent.width} * shown.tileExtent.height / 16 * 8 == tile_size);
    Array small(sparse_shape(8, 8));  // has no whole tile
    CU_OK(cu.cuArrayGetSparseProperties(&shown, small));
    CHECK(shown.flags == CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL);
    CHECK(shown.miptailSize == tile_size);
    SparseMipmap mipmap(sparse_shape(512, 512), 10);
    CU_OK(cu.cuMipmappedArrayGetSparseProperties(&shown, mipmap.handle));
    CHECK(512u >> shown.miptailFirstLevel < std::max(shown.tileExtent.width, shown.tileExtent.height));
    CHECK(shown.miptailSize == tile_size);

    Array ordinary(described(512, 512));
    CU_CHECK(cu.cuArrayGetSparseProperties(&shown, ordinary), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuArrayGetSparseProperties(&shown, mipmap.level(0)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuArrayGetSparseProperties(nullptr, small), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuArrayGetSparseProperties(&shown, nullptr), CUDA_ERROR_INVALID_HANDLE);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needed{};
    CU_CHECK(cu.cuArrayGetMemoryRequirements(&needed, small, gpu.device), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuArrayGetMemoryRequirements(&needed, ordinary, gpu.device), CUDA_ERROR_INVALID_VALUE);
    CUarray refused = nullptr;
    auto line = sparse_shape(512, 0), both = sparse_shape(512, 512, 0, CUDA_ARRAY3D_DEFERRED_MAPPING);
    CU_CHECK(cu.cuArray3DCreate(&refused, &line), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuArray3DCreate(&refused, &both), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a tile has what is in the memory that is mapped there, and others are empty", "[array][sparse]") {
    Gpu gpu;
    constexpr size_t width = 300, height = 200;  // tiles of 128 by 128: 3 by 2
    Array array(sparse_shape(width, height));
    TilePool pool(pool_bytes);
    const auto in = counted_floats(width * height);
    put_level(array, width, height, 1, in);
    CHECK(are_all(get_level(array, width, height), 0));
    auto expect = [&](auto&& is_there) {
        auto out = get_level(array, width, height);
        for (size_t y = 0; y < height; ++y)
            for (size_t x = 0; x < width; ++x) {
                const float expected = is_there(x / 128, y / 128) ? in[y * width + x] : 0;
                if (out[y * width + x] != expected) {
                    CAPTURE(x, y);
                    REQUIRE(out[y * width + x] == expected);
                }
            }
    };
    const auto second = tiles_at(tiles_of(array), {128, 0, 0, 128, 128, 1}),
               last = tiles_at(tiles_of(array), {256, 128, 0, 44, 72, 1});
    CU_OK(change_tiles(mapped_to(second, pool)));
    CU_OK(change_tiles(mapped_to(last, pool, 5 * tile_size)));
    put_level(array, width, height, 1, in);
    expect([](size_t x, size_t y) { return (x == 1 && y == 0) || (x == 2 && y == 1); });
    CU_OK(change_tiles(unmapped_from(second)));
    expect([](size_t x, size_t y) { return x == 2 && y == 1; });
    CU_OK(change_tiles(mapped_to(second, pool)));  // with what it had
    expect([](size_t x, size_t y) { return (x == 1 && y == 0) || (x == 2 && y == 1); });
    const auto all = tiles_at(tiles_of(array), {0, 0, 0, 384, 256, 1});
    CU_OK(change_tiles(mapped_to(all, pool, 6 * tile_size)));
    put_level(array, width, height, 1, in);
    expect([](size_t, size_t) { return true; });
    CU_OK(change_tiles(unmapped_from(all)));
    expect([](size_t, size_t) { return false; });
}

TEST_CASE("the same memory may be that of several tiles and arrays", "[array][sparse]") {
    Gpu gpu;
    Array one(sparse_shape(256, 128)), other(sparse_shape(128, 128));
    TilePool pool(pool_bytes);
    CUarrayMapInfo list[] = {mapped_to(tiles_at(tiles_of(one), {0, 0, 0, 128, 128, 1}), pool, tile_size),
                             mapped_to(tiles_at(tiles_of(one), {128, 0, 0, 128, 128, 1}), pool, tile_size),
                             mapped_to(tiles_at(tiles_of(other), {0, 0, 0, 128, 128, 1}), pool, tile_size)};
    CU_OK(cu.cuMemMapArrayAsync(list, 3, nullptr));
    const auto in = counted_floats(128 * 128);
    put_level(other, 128, 128, 1, in);
    auto out = get_level(one, 256, 128);
    for (size_t y = 0; y < 128; ++y)
        for (size_t x = 0; x < 256; ++x) REQUIRE(out[y * 256 + x] == in[y * 128 + x % 128]);
}

TEST_CASE("kernels read and write the tiles that are there", "[array][sparse][texture]") {
    Gpu gpu;
    Module module;
    Array array(sparse_shape(256, 256, 0, CUDA_ARRAY3D_SURFACE_LDST));
    TilePool pool(pool_bytes);
    CU_OK(change_tiles(mapped_to(tiles_at(tiles_of(array), {0, 0, 0, 128, 128, 1}), pool)));
    auto resource = resource_of(array);
    auto how = sampled();
    CUsurfObject surface = 0;
    CUtexObject texture = 0;
    CU_OK(cu.cuSurfObjectCreate(&surface, &resource));
    CU_OK(cu.cuTexObjectCreate(&texture, &resource, &how, nullptr));
    struct Hidden {
        int unused;
        CUsurfObject surface;
    } hidden{0, surface};
    CU_OK(launch_shaped(module.function("write_surface"), 256, 256, 0, nullptr, hidden, 1));
    Memory result(16 * 16 * 4);
    CU_OK(launch_shaped(module.function("read_resident"), 16, 16, 0, nullptr, texture, result.address, 16, 16));
    auto got = result.read<float>(16 * 16);
    for (int y = 0; y < 16; ++y)
        for (int x = 0; x < 16; ++x) {
            const bool there = x < 8 && y < 8;
            REQUIRE(got[y * 16 + x] == (there ? float(1 + 10 * 16 * y + 16 * x) : -1));
        }
    CU_OK(launch_shaped(module.function("read_texture"), 1, 256, 0, nullptr, texture, result.address, 200));
    CHECK(result.read<float>(200)[130] == 0);
    CU_OK(cu.cuTexObjectDestroy(texture));
    CU_OK(cu.cuSurfObjectDestroy(surface));
}

TEST_CASE("a sparse mipmap's small levels lie in its tail", "[array][sparse]") {
    Gpu gpu;
    SparseMipmap mipmap(sparse_shape(512, 256), 10);
    CUDA_ARRAY_SPARSE_PROPERTIES shown{};
    CU_OK(cu.cuMipmappedArrayGetSparseProperties(&shown, mipmap.handle));
    REQUIRE(shown.miptailFirstLevel == 2);
    TilePool pool(pool_bytes);
    const auto tail = tail_of(tiles_of(mipmap), 0, shown.miptailSize),
               level = tiles_at(tiles_of(mipmap), {0, 0, 0, 256, 128, 1, 1});
    CU_OK(change_tiles(mapped_to(tail, pool)));
    CU_OK(change_tiles(mapped_to(level, pool, tile_size)));
    std::vector<std::vector<float>> written;
    for (unsigned index = 0; index < 10; ++index) {
        const size_t width = std::max(512u >> index, 1u), height = std::max(256u >> index, 1u);
        written.push_back(counted_floats(width * height, float(1000 * index + 1)));
        put_level(mipmap.level(index), width, height, 1, written.back());
    }
    for (unsigned index = 0; index < 10; ++index) {
        auto out = get_level(mipmap.level(index), std::max(512u >> index, 1u), std::max(256u >> index, 1u));
        if (index == 0)
            CHECK(are_all(out, 0));
        else
            CHECK(out == written[index]);
    }
    CU_OK(change_tiles(unmapped_from(tail)));
    CHECK(are_all(get_level(mipmap.level(3), 64, 32), 0));
    CHECK(get_level(mipmap.level(1), 256, 128) == written[1]);
    // What lies in the tail has no tiles of its own, and there is nothing behind it.
    CU_CHECK(change_tiles(mapped_to(tiles_at(tiles_of(mipmap), {0, 0, 0, 128, 64, 1, 2}), pool)),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(change_tiles(mapped_to(tiles_at(tiles_of(mipmap), {0, 0, 0, 128, 128, 1, 10}), pool)),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(change_tiles(mapped_to(tail_of(tiles_of(mipmap), shown.miptailSize, tile_size), pool)),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(change_tiles(mapped_to(tail_of(tiles_of(mipmap), 0, tile_size / 2), pool)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(change_tiles(mapped_to(tail_of(tiles_of(mipmap), 0, tile_size, 1), pool)), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(change_tiles(mapped_to(tiles_at(tiles_of(mipmap.level(0)), {0, 0, 0, 128, 128, 1}), pool)),
             CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("layers and slices have tiles of their own", "[array][sparse]") {
    Gpu gpu;
    TilePool pool(pool_bytes);
    {
        SparseMipmap mipmap(sparse_shape(128, 128, 3, CUDA_ARRAY3D_LAYERED), 8);
        CUDA_ARRAY_SPARSE_PROPERTIES shown{};
        CU_OK(cu.cuMipmappedArrayGetSparseProperties(&shown, mipmap.handle));
        CU_OK(change_tiles(mapped_to(tiles_at(tiles_of(mipmap), {0, 0, 0, 128, 128, 1, 0, 1}), pool)));
        const bool single = shown.flags & CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL;
        CU_OK(
            change_tiles(mapped_to(tail_of(tiles_of(mipmap), 0, shown.miptailSize, single ? 0 : 2), pool, tile_size)));
        const auto large = counted_floats(128 * 128 * 3), small = counted_floats(64 * 64 * 3);
        put_level(mipmap.level(0), 128, 128, 3, large);
        put_level(mipmap.level(1), 64, 64, 3, small);
        auto out = get_level(mipmap.level(0), 128, 128, 3), out_small = get_level(mipmap.level(1), 64, 64, 3);
        for (size_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == (i / (128 * 128) == 1 ? large[i] : 0));
        for (size_t i = 0; i < out_small.size(); ++i)
            REQUIRE(out_small[i] == (single || i / (64 * 64) == 2 ? small[i] : 0));
        CU_CHECK(change_tiles(mapped_to(tiles_at(tiles_of(mipmap), {0, 0, 0, 128, 128, 1, 0, 3}), pool)),
                 CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(change_tiles(mapped_to(tiles_at(tiles_of(mipmap), {0, 0, 1, 128, 128, 1}), pool)),
                 CUDA_ERROR_INVALID_VALUE);
        CU_CHECK(change_tiles(mapped_to(tiles_at(tiles_of(mipmap), {0, 0, 0, 128, 128, 2}), pool)),
                 CUDA_ERROR_INVALID_VALUE);
    }
    constexpr size_t width = 64, height = 64, depth = 40;  // tiles of 32 by 32 by 16
    Array volume(sparse_shape(width, height, depth));
    CU_OK(change_tiles(mapped_to(tiles_at(tiles_of(volume), {32, 0, 16, 32, 64, 24}), pool, 4 * tile_size)));
    const auto in = counted_floats(width * height * depth);
    put_level(volume, width, height, depth, in);
    auto out = get_level(volume, width, height, depth);
    for (size_t i = 0; i < out.size(); ++i) {
        const bool there = i % width >= 32 && i / (width * height) >= 16;
        REQUIRE(out[i] == (there ? in[i] : 0));
    }
    CU_CHECK(change_tiles(mapped_to(tiles_at(tiles_of(volume), {0, 0, 0, 32, 32, 16, 0, 1}), pool)),
             CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(change_tiles(mapped_to(tiles_at(tiles_of(volume), {0, 0, 8, 32, 32, 16}), pool)),
             CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a sparse array of blocks is mapped in texels and copied in blocks", "[array][sparse][blocks]") {
    Gpu gpu;
    Array array({1024, 512, 0, CU_AD_FORMAT_BC7_UNORM, 4, CUDA_ARRAY3D_SPARSE});
    CUDA_ARRAY_SPARSE_PROPERTIES shown{};
    CU_OK(cu.cuArrayGetSparseProperties(&shown, array));
    const unsigned width = shown.tileExtent.width, height = shown.tileExtent.height;
    TilePool pool(pool_bytes);
    CU_OK(change_tiles(mapped_to(tiles_at(tiles_of(array), {width, 0, 0, width, height, 1}), pool)));
    const size_t row = 1024 / 4 * 4;  // floats
    const auto in = counted_floats(row * 128);
    put_level(array, row, 128, 1, in);
    auto out = get_level(array, row, 128);
    for (size_t y = 0; y < 128; ++y)
        for (size_t x = 0; x < row; ++x) {
            const bool there = x >= width && x < 2 * width && y < height / 4;
            REQUIRE(out[y * row + x] == (there ? in[y * row + x] : 0));
        }
}

TEST_CASE("an array that is mapped later is empty until then", "[array][sparse]") {
    Gpu gpu;
    Array array(described(300, 200, 0, CUDA_ARRAY3D_DEFERRED_MAPPING));
    CUDA_ARRAY_MEMORY_REQUIREMENTS needed{};
    CU_OK(cu.cuArrayGetMemoryRequirements(&needed, array, gpu.device));
    CHECK(needed.size >= 300 * 200 * 4);
    CHECK(needed.size <= 1 << 20);
    CHECK(needed.alignment % tile_size == 0);
    TilePool pool(pool_bytes);
    auto info = tiles_of(array);
    info.subresource.sparseLevel.level = 77;  // nobody looks at it
    CU_OK(change_tiles(mapped_to(info, pool, needed.alignment)));
    const auto in = counted_floats(300 * 200);
    put_level(array, 300, 200, 1, in);
    CHECK(get_level(array, 300, 200) == in);
    CU_OK(change_tiles(unmapped_from(info)));
    CU_OK(change_tiles(mapped_to(info, pool, needed.alignment)));
    CHECK(get_level(array, 300, 200) == in);
    CUDA_ARRAY_SPARSE_PROPERTIES shown{};
    CU_CHECK(cu.cuArrayGetSparseProperties(&shown, array), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuArrayGetMemoryRequirements(&needed, array, 77), CUDA_ERROR_INVALID_DEVICE);
    SparseMipmap mipmap(described(64, 64, 2, CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_LAYERED), 7);
    CU_OK(cu.cuMipmappedArrayGetMemoryRequirements(&needed, mipmap.handle, gpu.device));
    CU_OK(change_tiles(mapped_to(tiles_of(mipmap), pool)));
    for (unsigned level = 0; level < 7; ++level) {
        const size_t side = 64u >> level;
        put_level(mipmap.level(level), side, side, 2, counted_floats(side * side * 2, float(level)));
    }
    for (unsigned level = 0; level < 7; ++level) {
        const size_t side = 64u >> level;
        CHECK(get_level(mipmap.level(level), side, side, 2) == counted_floats(side * side * 2, float(level)));
    }
    Array large(described(1024, 1024, 0, CUDA_ARRAY3D_DEFERRED_MAPPING));  // larger than the pool
    CU_CHECK(change_tiles(mapped_to(tiles_of(large), pool)), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("mapping happens in its stream's order", "[array][sparse][ordering]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
    Array array(sparse_shape(128, 128));
    TilePool pool(pool_bytes);
    const auto whole_tile = tiles_at(tiles_of(array), {0, 0, 0, 128, 128, 1});
    CU_OK(change_tiles(mapped_to(whole_tile, pool), other));
    CU_OK(cu.cuStreamSynchronize(other));
    const auto in = counted_floats(128 * 128);
    put_level(array, 128, 128, 1, in);
    Memory memory(3 * tile_size);
    CU_OK(cu.cuCtxSynchronize());  // both are filled in the null stream, for which the other streams do not wait
    auto read = [&](size_t place, CUstream in_stream) {
        auto copy = whole_level(array, 128, 128, 1);
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = memory.address + place * tile_size, copy.dstPitch = 512, copy.dstHeight = 128;
        CU_OK(cu.cuMemcpy3DAsync(&copy, in_stream));
    };
    Gate gate(stream);
    CU_OK(change_tiles(unmapped_from(whole_tile), stream));
    read(1, stream);
    CU_OK(change_tiles(mapped_to(whole_tile, pool), stream));
    read(2, stream);
    read(0, other);
    CU_OK(cu.cuStreamSynchronize(other));
    CHECK(memory.read<float>(128 * 128) == in);  // nothing has been unmapped yet
    gate.open();
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(are_all(memory.read<float>(128 * 128, tile_size), 0));
    CHECK(memory.read<float>(128 * 128, 2 * tile_size) == in);
    CU_OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_CHECK(change_tiles(unmapped_from(whole_tile), stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph = nullptr;
    CU_CHECK(cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("memory that a tile has lives on when its handle is released", "[array][sparse][full]") {
    Gpu gpu;
    constexpr size_t bytes = 64 << 20;
    size_t before = 0, between = 0, after = 0, total = 0;
    Array array(sparse_shape(128, 128)), kept(sparse_shape(256, 128));
    CU_OK(cu.cuMemGetInfo(&before, &total));
    for (bool destroy : {false, true}) {
        CUarray other = nullptr;
        auto shape = sparse_shape(128, 128);
        CU_OK(cu.cuArray3DCreate(&other, &shape));
        TilePool pool(bytes);
        const auto tile_of = tiles_at(tiles_of(other), {0, 0, 0, 128, 128, 1});
        CU_OK(change_tiles(mapped_to(tile_of, pool, bytes - tile_size)));
        const auto in = counted_floats(128 * 128);
        put_level(other, 128, 128, 1, in);
        auto released = pool.handle;
        pool.release();
        CU_CHECK(cu.cuMemRelease(released), CUDA_ERROR_INVALID_VALUE);
        auto late = mapped_to(tile_of, pool);
        late.memHandle.memHandle = released;
        CU_CHECK(change_tiles(late), CUDA_ERROR_INVALID_VALUE);
        CHECK(get_level(other, 128, 128) == in);
        CU_OK(cu.cuMemGetInfo(&between, &total));
        CHECK(between + bytes <= before);
        if (!destroy) CU_OK(change_tiles(unmapped_from(tile_of)));
        CU_OK(cu.cuCtxSynchronize());
        CU_OK(cu.cuArrayDestroy(other));
        CU_OK(cu.cuMemGetInfo(&after, &total));
        CHECK(after + (4 << 20) >= before);
        CU_CHECK(change_tiles(unmapped_from(tile_of)), CUDA_ERROR_INVALID_HANDLE);
    }
    // Over and over: all of it comes back each time.
    for (int round = 0; round < 40; ++round) {
        TilePool pool(size_t{256} << 20);
        CU_OK(change_tiles(mapped_to(tiles_at(tiles_of(kept), {0, 0, 0, 256, 128, 1}), pool)));
        CU_OK(change_tiles(unmapped_from(tiles_at(tiles_of(kept), {unsigned(round % 2) * 128, 0, 0, 128, 128, 1}))));
        if (round % 3 != 0) pool.release();
        CU_OK(change_tiles(unmapped_from(tiles_at(tiles_of(kept), {0, 0, 0, 256, 128, 1}))));
        CU_OK(cu.cuCtxSynchronize());
    }
}

TEST_CASE("a mapping that cannot be is refused", "[array][sparse]") {
    Gpu gpu;
    Array array(sparse_shape(300, 200)), ordinary(described(256, 256));
    TilePool pool(pool_bytes), no_pool(pool_bytes, 0, 0);
    const auto good = mapped_to(tiles_at(tiles_of(array), {0, 0, 0, 128, 128, 1}), pool);
    CU_OK(change_tiles(good));
    auto refused = [&](auto&& spoil, CUresult why = CUDA_ERROR_INVALID_VALUE) {
        auto info = good;
        spoil(info);
        CU_CHECK(change_tiles(info), why);
    };
    refused([&](auto& info) { info.resource.array = ordinary; });
    refused([&](auto& info) { info.resource.array = nullptr; }, CUDA_ERROR_INVALID_HANDLE);
    refused([&](auto& info) { info.resource.array = CUarray(0x1234); }, CUDA_ERROR_INVALID_HANDLE);
    refused([](auto& info) { info.resourceType = CU_RESOURCE_TYPE_LINEAR; });
    refused([](auto& info) { info.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY; }, CUDA_ERROR_INVALID_HANDLE);
    refused([](auto& info) { info.subresourceType = CUarraySparseSubresourceType(2); });
    refused([](auto& info) { info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL; });
    refused([](auto& info) { info.memOperationType = CUmemOperationType(0); });
    refused([](auto& info) { info.memOperationType = CUmemOperationType(3); });
    refused([](auto& info) { info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP; });  // with a handle
    refused([](auto& info) { info.memHandleType = CUmemHandleType(1); });
    refused([&](auto& info) { info.memHandle.memHandle = no_pool.handle; });
    refused([](auto& info) { info.memHandle.memHandle = 0; });
    refused([](auto& info) { info.memHandle.memHandle = 0x77777; });
    refused([](auto& info) { info.offset = 1; });
    refused([](auto& info) { info.offset = pool_bytes; });
    refused([](auto& info) { info.offset = ~0ull - tile_size + 1; });
    refused([](auto& info) { info.deviceBitMask = 0; });
    refused([](auto& info) { info.deviceBitMask = 3; });
    refused([](auto& info) { info.flags = 1; });
    refused([](auto& info) { info.reserved[1] = 1; });
    refused([](auto& info) { info.subresource.sparseLevel.offsetX = 1; });
    refused([](auto& info) { info.subresource.sparseLevel.offsetX = 384; });
    refused([](auto& info) { info.subresource.sparseLevel.offsetY = ~0u - 127; });
    refused([](auto& info) { info.subresource.sparseLevel.extentWidth = 0; });
    refused([](auto& info) { info.subresource.sparseLevel.extentWidth = 100; });
    refused([](auto& info) { info.subresource.sparseLevel.extentHeight = 384; });
    refused([](auto& info) { info.subresource.sparseLevel.extentDepth = 0; });
    refused([](auto& info) { info.subresource.sparseLevel.layer = 1; });
    refused([](auto& info) { info.subresource.sparseLevel.level = 1; });
    refused([&](auto& info) { info.offset = pool_bytes - tile_size, info.subresource.sparseLevel.extentWidth = 256; });
    CU_CHECK(cu.cuMemMapArrayAsync(nullptr, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(change_tiles(good, CUstream(0x1230)), CUDA_ERROR_INVALID_HANDLE);
    // One that is wrong, and nothing of the list is done.
    const auto in = counted_floats(300 * 200);
    put_level(array, 300, 200, 1, in);
    CUarrayMapInfo list[] = {unmapped_from(good), good};
    list[0].memHandle.memHandle = 0;
    list[1].offset = 1;
    CU_CHECK(cu.cuMemMapArrayAsync(list, 2, nullptr), CUDA_ERROR_INVALID_VALUE);
    CHECK(get_level(array, 300, 200)[5] == in[5]);
    CU_OK(cu.cuCtxSynchronize());
}

TEST_CASE("memory of one device is not mapped into another's array", "[array][sparse][devices]") {
    int count = 0;
    CU_OK(cu.cuInit(0));
    CU_OK(cu.cuDeviceGetCount(&count));
    if (count < 2) {
        WARN("only one device: nothing tested");
        return;
    }
    Gpu first(0);
    Array here(sparse_shape(128, 128));
    TilePool of_first(pool_bytes, 0), of_second(pool_bytes, 1);
    CU_CHECK(change_tiles(mapped_to(tiles_at(tiles_of(here), {0, 0, 0, 128, 128, 1}), of_second)),
             CUDA_ERROR_INVALID_VALUE);
    Gpu second(1);
    Array there(sparse_shape(128, 128));
    CU_CHECK(change_tiles(mapped_to(tiles_at(tiles_of(there), {0, 0, 0, 128, 128, 1}), of_second)),
             CUDA_ERROR_INVALID_VALUE);
    auto info = mapped_to(tiles_at(tiles_of(there), {0, 0, 0, 128, 128, 1}), of_second);
    info.deviceBitMask = 2;
    CU_OK(change_tiles(info));
    put_level(there, 128, 128, 1, counted_floats(128 * 128));
    CHECK(get_level(there, 128, 128) == counted_floats(128 * 128));
    info.resource.array = here;
    CU_CHECK(change_tiles(info), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("tiles keep what they have through any mapping and unmapping", "[array][sparse]") {
    Gpu gpu;
    constexpr unsigned across = 4, down = 3, side = 128, pages = 32;
    Array array(sparse_shape(across * side, down * side)), brush(sparse_shape(side, side));
    TilePool pool(pool_bytes);
    const auto brush_tile = tiles_at(tiles_of(brush), {0, 0, 0, side, side, 1});
    for (unsigned page = 0; page < pages; ++page) {
        CU_OK(change_tiles(mapped_to(brush_tile, pool, page * tile_size)));
        put_level(brush, side, side, 1, std::vector<float>(side * side, float(page + 1)));
    }
    std::mt19937 random(7);
    std::array<unsigned, across * down> model{};  // page + 1
    for (int step = 0; step < 300; ++step) {
        auto any = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
        const unsigned x = any(across + 1), y = any(down + 1), width = any(across + 2), height = any(down + 2);
        auto info = tiles_at(tiles_of(array), {x * side, y * side, 0, width * side, height * side, 1});
        const bool maps = any(3) != 0;
        const unsigned page = any(pages);
        const bool inside =
            x < across && y < down && width != 0 && height != 0 && x + width <= across && y + height <= down;
        const bool fits = !maps || page + width * height <= pages;
        CAPTURE(step, x, y, width, height, maps, page);
        CU_CHECK(change_tiles(maps ? mapped_to(info, pool, page * tile_size) : unmapped_from(info)),
                 inside && fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
        if (!inside || !fits) continue;
        for (unsigned row = 0; row < height; ++row)
            for (unsigned column = 0; column < width; ++column)
                model[(y + row) * across + x + column] = maps ? page + row * width + column + 1 : 0;
        if (step % 20 != 0) continue;
        auto out = get_level(array, across * side, down * side);
        for (unsigned i = 0; i < model.size(); ++i)
            CHECK(out[(i / across * side + 5) * across * side + i % across * side + 7] == float(model[i]));
    }
}
