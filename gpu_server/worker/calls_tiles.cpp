// Memory that is mapped into arrays. A client's own checks come before; here is what it must not be trusted with, and the
// driver has the last word.
#include "gpu_client/protocol/array_records.hpp"
#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

static Answer show(Call& call, const std::shared_ptr<TiledArray>* tiled) {
    if (!tiled || !*tiled || (*tiled)->shape.deferred_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
    auto& properties = (*tiled)->shape.properties;
    wire::SparseProperties reply;
    reply.tile = {properties.tileExtent.width, properties.tileExtent.height, properties.tileExtent.depth};
    reply.first_tail_level = properties.miptailFirstLevel;
    reply.tail_bytes = properties.miptailSize;
    reply.flags = properties.flags;
    call.reply(reply);
    return CUDA_SUCCESS;
}

static Answer get_sparse_array(WorkerSession& session, Call& call, const wire::GetSparseArray<Resolved>& wanted) {
    auto* found = session.handles.arrays.find(wanted.named.number);
    return show(call, found ? &found->tiled : nullptr);
}

static Answer get_sparse_mipmap(WorkerSession& session, Call& call, const wire::GetSparseMipmap<Resolved>& wanted) {
    auto* found = session.handles.mipmapped_arrays.find(wanted.named.number);
    return show(call, found ? &found->tiled : nullptr);
}

// The array's tiles, and what the driver is told of them. Null: it has none, or there are no such ones.
template <class Record>
static std::shared_ptr<TiledArray> find_tiles(WorkerSession& session, const Record& wanted, CUarrayMapInfo& info,
                                              uint64_t& tiles) {
    std::shared_ptr<TiledArray> tiled;
    if (auto* array = wanted.array.handle ? session.handles.arrays.find(wanted.array.number) : nullptr) {
        tiled = array->tiled;
        info.resourceType = CU_RESOURCE_TYPE_ARRAY;
        info.resource.array = array->handle;
    } else if (auto* mipmap = session.handles.mipmapped_arrays.find(wanted.mipmapped.number)) {
        tiled = mipmap->tiled;
        info.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        info.resource.mipmap = mipmap->handle;
    }
    for (int axis = 0; axis < 3; ++axis)
        if (std::max(wanted.region.offset[axis], wanted.region.extent[axis]) > UINT32_MAX && wanted.region.tail == 0)
            return nullptr;
    wire::put_region(wanted.region, info);
    info.deviceBitMask = 1u << wanted.device.object->handle;
    auto count = [&](uint64_t, uint64_t of_run) { tiles += of_run; };
    return tiled && tiled->shape.each_run(wanted.region, count) ? tiled : nullptr;
}

static Answer map_tiles(WorkerSession& session, Call&, const wire::MapTiles<Resolved>& wanted) {
    if (!driver().cuMemMapArrayAsync) return CUDA_ERROR_NOT_SUPPORTED;
    CUarrayMapInfo info{};
    uint64_t tiles = 0;
    auto tiled = find_tiles(session, wanted, info, tiles);
    auto& memory = *wanted.memory.object;
    if (!tiled || memory.multicast || memory.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const bool fits = wanted.offset <= memory.bytes && tiles <= (memory.bytes - wanted.offset) / wire::array_tile_bytes;
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    if (tiled->book.runs() >= tile_runs_max) return CUDA_ERROR_OUT_OF_MEMORY;
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = memory.handle;
    info.offset = wanted.offset;
    auto result = driver().cuMemMapArrayAsync(&info, 1, wanted.stream.handle);
    if (result != CUDA_SUCCESS) return result;
    std::vector<std::shared_ptr<Physical>> dropped;
    tiled->shape.each_run(wanted.region, [&](uint64_t first, uint64_t count) {
        tiled->book.put(first, count, memory.physical, dropped);
    });
    session.unmapped_tiles.put(std::move(dropped), wanted.stream.handle);
    return CUDA_SUCCESS;
}

static Answer unmap_tiles(WorkerSession& session, Call&, const wire::UnmapTiles<Resolved>& wanted) {
    if (!driver().cuMemMapArrayAsync) return CUDA_ERROR_NOT_SUPPORTED;
    CUarrayMapInfo info{};
    uint64_t tiles = 0;
    auto tiled = find_tiles(session, wanted, info, tiles);
    if (!tiled) return CUDA_ERROR_INVALID_VALUE;
    info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    auto result = driver().cuMemMapArrayAsync(&info, 1, wanted.stream.handle);
    if (result != CUDA_SUCCESS) return result;
    std::vector<std::shared_ptr<Physical>> dropped;
    tiled->shape.each_run(wanted.region,
                          [&](uint64_t first, uint64_t count) { tiled->book.take(first, count, dropped); });
    session.unmapped_tiles.put(std::move(dropped), wanted.stream.handle);
    return CUDA_SUCCESS;
}

void add_tile_calls(HandlerTable& table) {
    table.add<get_sparse_array>();
    table.add<get_sparse_mipmap>();
    table.add<map_tiles>();
    table.add<unmap_tiles>();
}

}  // namespace tnr::worker
