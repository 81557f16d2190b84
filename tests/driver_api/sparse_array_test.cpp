// Sparse arrays, and arrays that are mapped as a whole later: what their tiles hold.
#include <algorithm>

#include "tiles.hpp"

using namespace driver_api;

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
