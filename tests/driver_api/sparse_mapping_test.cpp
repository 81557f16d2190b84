// Tiles of sparse arrays: the order in which they are mapped, whose memory they have, and what is refused.
#include <random>

#include "tiles.hpp"

using namespace driver_api;

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
        TilePool pool(bytes);
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
