// cuMemMapArrayAsync, and what arrays of tiles say of themselves.
#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"
#include "gpu_server/emulated_gpu/driver/tiled_memory.hpp"

using namespace tnr::emulated;

namespace {

struct TileChange {
    std::shared_ptr<TiledMemory> tiled;
    tnr::wire::TileRegion region;
    std::shared_ptr<PhysicalMemory> memory;
    uint64_t offset = 0;
};

template <class T>
CUresult find_tiles(const std::shared_ptr<T>& object, const Context& context, TileChange& change) {
    if (!object) return CUDA_ERROR_INVALID_HANDLE;
    if (!object->tiled || &object->context.device != &context.device) return CUDA_ERROR_INVALID_VALUE;
    change.tiled = object->tiled;
    return CUDA_SUCCESS;
}

CUresult read_resource(const CUarrayMapInfo& info, const Context& context, TileChange& change) {
    if (info.resourceType == CU_RESOURCE_TYPE_ARRAY)
        return find_tiles(find<Array>(info.resource.array), context, change);
    if (info.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
        return find_tiles(find<MipmappedArray>(info.resource.mipmap), context, change);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult read_memory(const CUarrayMapInfo& info, const Context& context, uint64_t bytes, TileChange& change) {
    if (info.memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
        return info.memHandle.memHandle == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (info.memOperationType != CU_MEM_OPERATION_TYPE_MAP || info.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC)
        return CUDA_ERROR_INVALID_VALUE;
    auto memory = find<PhysicalMemory>(info.memHandle.memHandle);
    const bool fits = memory && (memory->properties.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) &&
                      &memory->device == &context.device && info.offset % tnr::ptx::tile_bytes == 0 &&
                      info.offset <= memory->bytes && bytes <= memory->bytes - info.offset;
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    if (!memory->window()) return CUDA_ERROR_OUT_OF_MEMORY;
    change.memory = std::move(memory);
    change.offset = info.offset;
    return CUDA_SUCCESS;
}

CUresult read_change(const CUarrayMapInfo& info, const Context& context, TileChange& change) {
    if (CUresult error = read_resource(info, context, change)) return error;
    const bool plain = info.flags == 0 && info.reserved[0] == 0 && info.reserved[1] == 0;
    const int device = context.device.ordinal;
    if (!plain || device >= 32 || info.deviceBitMask != 1u << device) return CUDA_ERROR_INVALID_VALUE;
    if (change.tiled->shape.deferred_bytes == 0 && !tnr::wire::region_of(info, change.region))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t tiles = 0;
    auto count = [&](uint64_t, uint64_t of_run) { tiles += of_run; };
    if (!change.tiled->shape.each_run(change.region, count)) return CUDA_ERROR_INVALID_VALUE;
    return read_memory(info, context, tiles * tnr::ptx::tile_bytes, change);
}

template <class T, class Handle>
CUresult show_properties(CUDA_ARRAY_SPARSE_PROPERTIES* out, Handle handle) {
    return initialized([&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto object = find<T>(handle);
        if (!object) return CUDA_ERROR_INVALID_HANDLE;
        if (!object->tiled || object->tiled->shape.deferred_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
        *out = object->tiled->shape.properties;
        return CUDA_SUCCESS;
    });
}

template <class T, class Handle>
CUresult show_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, Handle handle, CUdevice device) {
    return initialized([&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto object = find<T>(handle);
        if (!object) return CUDA_ERROR_INVALID_HANDLE;
        if (!device_of(device)) return CUDA_ERROR_INVALID_DEVICE;
        if (!object->tiled || object->tiled->shape.deferred_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
        *out = {};
        out->size = object->tiled->shape.deferred_bytes;
        out->alignment = tnr::ptx::tile_bytes;
        return CUDA_SUCCESS;
    });
}

}  // namespace

CUresult cuMemMapArrayAsync(CUarrayMapInfo* infos, unsigned count, CUstream handle) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (count != 0 && !infos) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = refuse_while_capturing(stream)) return error;
        std::vector<TileChange> changes(count);
        for (unsigned i = 0; i < count; ++i)
            if (CUresult error = read_change(infos[i], stream.context, changes[i])) return error;
        if (count == 0) return CUDA_SUCCESS;
        stream.context.submit(stream, [changes = std::move(changes)] {
            for (auto& change : changes) change.tiled->map(change.region, change.memory, change.offset);
        });
        return CUDA_SUCCESS;
    });
}
CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* infos, unsigned count, CUstream stream) {
    return cuMemMapArrayAsync(infos, count, per_thread(stream));
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* out, CUarray handle) {
    return show_properties<Array>(out, handle);
}
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* out, CUmipmappedArray handle) {
    return show_properties<MipmappedArray>(out, handle);
}
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle, CUdevice device) {
    return show_requirements<Array>(out, handle, device);
}
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUmipmappedArray handle,
                                               CUdevice device) {
    return show_requirements<MipmappedArray>(out, handle, device);
}
