// cuMemMapArrayAsync: memory of cuMemCreate becomes that of an array's tiles, in the stream's order. How the array is made of
// tiles was learnt when it was made, so the whole list is checked here, and nobody waits for the worker.
#include "gpu_client/cuda/arrays.hpp"
#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/cuda/virtual_memory.hpp"
#include "gpu_client/protocol/array_records.hpp"

namespace tnr::cuda {

namespace {

struct TileChange {
    wire::MapTiles<> record;
    std::shared_ptr<Tiled> tiled;
    std::shared_ptr<const uint64_t> memory;  // handle; null: there is none any more
};

template <class Object>
CUresult read_object(const Object* object, const Context& stream_context, uint64_t& number, TileChange& change) {
    if (!object) return CUDA_ERROR_INVALID_HANDLE;
    if (!object->tiled) return CUDA_ERROR_INVALID_VALUE;
    auto* context = contexts().find(object->context);
    if (auto result = usable(context); result != CUDA_SUCCESS) return result;
    number = object->number;
    change.tiled = object->tiled;
    return context->device == stream_context.device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult read_resource(const CUarrayMapInfo& info, const Context& context, TileChange& change) {
    if (info.resourceType == CU_RESOURCE_TYPE_ARRAY)
        return read_object(find_array(info.resource.array), context, change.record.array, change);
    if (info.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
        return read_object(find_mipmapped_array(info.resource.mipmap), context, change.record.mipmapped, change);
    return CUDA_ERROR_INVALID_VALUE;
}

bool is_sound(const CUarrayMapInfo& info, int device) {
    const bool plain = info.flags == 0 && info.reserved[0] == 0 && info.reserved[1] == 0;
    return plain && device < 32 && info.deviceBitMask == 1u << device;
}

CUresult read_memory(const CUarrayMapInfo& info, int device, uint64_t bytes, TileChange& change)
    TNR_REQUIRES(mappings().mutex) {
    if (info.memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
        return info.memHandle.memHandle == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (info.memOperationType != CU_MEM_OPERATION_TYPE_MAP || info.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC)
        return CUDA_ERROR_INVALID_VALUE;
    auto* physical = find_held(info.memHandle.memHandle);
    const bool fits = physical && !physical->multicast && is_tile_pool(physical->properties) &&
                      physical->device == device && info.offset % wire::array_tile_bytes == 0 &&
                      info.offset <= physical->bytes && bytes <= physical->bytes - info.offset;
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    change.memory = std::make_shared<const uint64_t>(info.memHandle.memHandle);
    change.record.memory = physical->number;
    change.record.offset = info.offset;
    return CUDA_SUCCESS;
}

CUresult read_change(const CUarrayMapInfo& info, const Context& context, TileChange& change)
    TNR_REQUIRES(mappings().mutex) {
    if (auto result = read_resource(info, context, change); result != CUDA_SUCCESS) return result;
    if (!is_sound(info, context.device)) return CUDA_ERROR_INVALID_VALUE;
    if (change.tiled->shape.deferred_bytes == 0 && !wire::region_of(info, change.record.region))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t tiles = 0;
    bool there = change.tiled->shape.each_run(change.record.region, [&](uint64_t, uint64_t count) { tiles += count; });
    if (!there) return CUDA_ERROR_INVALID_VALUE;
    return read_memory(info, context.device, tiles * wire::array_tile_bytes, change);
}

void hold(const TileChange& change) TNR_REQUIRES(mappings().mutex) {
    if (change.memory) ++physicals().find(*change.memory)->used;
}

void note(TileChange& change, Freed& freed) TNR_REQUIRES(mappings().mutex) {
    std::vector<std::shared_ptr<const uint64_t>> dropped;
    auto& tiled = *change.tiled;
    if (!tiled.gone)
        tiled.shape.each_run(change.record.region, [&](uint64_t first, uint64_t count) {
            if (change.memory)
                tiled.book.put(first, count, change.memory, dropped);
            else
                tiled.book.take(first, count, dropped);
        });
    if (change.memory) dropped.push_back(std::move(change.memory));
    drop_tiles(dropped, freed);
}

CUresult send(const TileChange& change, const StreamRef& stream) {
    auto submit = [&](const auto& record) {
        RemoteCall call(record);
        call.use(stream);
        return call.send();
    };
    if (change.memory) return submit(change.record);
    auto& record = change.record;
    return submit(wire::UnmapTiles<>{record.array, record.mipmapped, record.region, record.device, record.stream});
}

// What is mapped is in use from before its record is sent, and what no tile has any more is let go after that: so the worker
// knows the memory whenever it reads of it.
CUresult map_tiles(const CUarrayMapInfo* infos, unsigned count, CUstream in) {
    if (count != 0 && !infos) return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    if (auto result = resolve_stream(in, stream); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    if (auto result = refuse_in_capture(stream); result != CUDA_SUCCESS) return result;
    std::vector<TileChange> changes(count);
    Freed freed;
    {
        LockGuard lock(mappings().mutex);
        for (unsigned i = 0; i < count; ++i) {
            changes[i].record.device = find_device(context->device)->number;
            changes[i].record.stream = stream.number;
            if (auto result = read_change(infos[i], *context, changes[i]); result != CUDA_SUCCESS) return result;
        }
        for (auto& change : changes) hold(change);
    }
    CUresult result = CUDA_SUCCESS;
    for (auto& change : changes)
        if (auto sent = send(change, stream); result == CUDA_SUCCESS) result = sent;
    {
        LockGuard lock(mappings().mutex);
        for (auto& change : changes) note(change, freed);
    }
    auto sent = send_changes(freed);
    return result != CUDA_SUCCESS ? result : sent;
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuMemMapArrayAsync(CUarrayMapInfo* infos, unsigned int count, CUstream stream) {
    return guarded("cuMemMapArrayAsync", [&] { return map_tiles(infos, count, stream); });
}

}  // extern "C"
