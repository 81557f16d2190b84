// Copies of rows in the driver's words.
#pragma once

#include "gpu_client/protocol/array_records.hpp"
#include "gpu_server/worker/handles.hpp"

namespace tnr::worker {

inline wire::RowsPlace<Resolved> in_memory(uint64_t address, uint64_t pitch) {
    return {.address = address, .pitch = pitch};
}

// Past so many bytes of each row, and so many rows.
inline void advance(wire::RowsPlace<Resolved>& place, uint64_t bytes, uint64_t rows) {
    place.x_bytes += bytes;
    place.y += rows;
    place.address += bytes + rows * place.pitch;
}

inline CUDA_MEMCPY3D box_of(uint64_t width, uint64_t rows) {
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = width;
    copy.Height = rows;
    copy.Depth = 1;
    return copy;
}

inline void put_source(CUDA_MEMCPY3D& copy, const std::byte* host, uint64_t pitch) {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host;
    copy.srcPitch = pitch;
}
inline void put_source(CUDA_MEMCPY3D& copy, const wire::RowsPlace<Resolved>& place) {
    copy.srcMemoryType = place.array.handle ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
    copy.srcArray = place.array.handle;
    copy.srcDevice = place.address;
    copy.srcPitch = place.pitch;
    if (place.array.handle) copy.srcXInBytes = place.x_bytes, copy.srcY = place.y, copy.srcZ = place.z;
}

inline void put_destination(CUDA_MEMCPY3D& copy, std::byte* host, uint64_t pitch) {
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = host;
    copy.dstPitch = pitch;
}
inline void put_destination(CUDA_MEMCPY3D& copy, const wire::RowsPlace<Resolved>& place) {
    copy.dstMemoryType = place.array.handle ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
    copy.dstArray = place.array.handle;
    copy.dstDevice = place.address;
    copy.dstPitch = place.pitch;
    if (place.array.handle) copy.dstXInBytes = place.x_bytes, copy.dstY = place.y, copy.dstZ = place.z;
}

}  // namespace tnr::worker
