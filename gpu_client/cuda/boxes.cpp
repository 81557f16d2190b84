// See boxes.hpp.
#include "gpu_client/cuda/boxes.hpp"

#include <algorithm>

#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/rows.hpp"
#include "gpu_client/cuda/shared_memory.hpp"

namespace tnr::cuda {

namespace {

// Memory that the program shares with the GPU is copied there.
void look_up_shared(BoxSide& side) {
    SharedMemory shared;
    if (!find_shared(side.address, shared)) return;
    side.on_device = true;
    if (side.address - shared.host < shared.bytes) side.address = shared.device + (side.address - shared.host);
}

// One side of CUDA_MEMCPY2D or 3D.
struct Given {
    CUmemorytype type;
    const void* host;
    CUdeviceptr device;
    CUarray array;
    size_t x, y, z, pitch, rows;  // the last: of a slice
};

CUresult place_in_array(const Given& given, const Box& box, BoxSide& side) {
    if (!given.array) return CUDA_ERROR_INVALID_VALUE;
    auto* array = find_array(given.array);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    auto& described = array->described;
    auto within = [](uint64_t at, uint64_t count, uint64_t size) { return at <= size && count <= size - at; };
    auto& unit = array->unit;
    bool sound = unit.bytes != 0 && within(given.x, box.row_bytes, unit.across(described.Width) * unit.bytes) &&
                 within(given.y, box.rows, unit.across(std::max<size_t>(described.Height, 1))) &&
                 within(given.z, box.slices, std::max<size_t>(described.Depth, 1));
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    side.on_device = true;
    side.array = array;
    side.x_bytes = given.x, side.y = given.y, side.z = given.z;
    side.pitch = box.row_bytes;
    side.slice_bytes = box.row_bytes * box.rows;
    return CUDA_SUCCESS;
}

bool is_pinned_box(const Box& box, const BoxSide& side) {
    const uint64_t slice = extent(box.row_bytes, box.rows, side.pitch);
    if (slice == 0 || box.slices == 0) return true;
    PinnedRange range;
    return slice <= SIZE_MAX / box.slices &&
           find_pinned(handle_of<const void*>(side.address), (box.slices - 1) * side.slice_bytes + slice, range);
}

CUresult find_side(const Given& given, const Box& box, BoxSide& side) {
    switch (given.type) {
        case CU_MEMORYTYPE_HOST:
            side.address = value_of(given.host);
            side.on_device = is_device_address(side.address);
            break;
        case CU_MEMORYTYPE_DEVICE:
            side.on_device = !is_pinned(given.device);
            side.address = given.device;
            break;
        case CU_MEMORYTYPE_UNIFIED:
            side.on_device = is_device_address(given.device);
            side.address = given.device;
            break;
        case CU_MEMORYTYPE_ARRAY:
            return place_in_array(given, box, side);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    // What is pinned ends where it does, whatever it is named; what is named as the device's is pinned or on a device.
    const bool has_end = given.type == CU_MEMORYTYPE_DEVICE || (!side.on_device && is_pinned(side.address));
    look_up_shared(side);
    side.pitch = given.pitch != 0 ? given.pitch : box.row_bytes + given.x;
    if (box.rows * box.slices > 1 && side.pitch < box.row_bytes + given.x) return CUDA_ERROR_INVALID_VALUE;
    const bool short_slices = given.rows < box.rows || given.rows - box.rows < given.y;
    if (box.slices > 1 && given.rows != 0 && short_slices) return CUDA_ERROR_INVALID_VALUE;
    side.slice_bytes = side.pitch * (given.rows != 0 ? given.rows : box.rows + given.y);
    side.address += given.z * side.slice_bytes + given.y * side.pitch + given.x;
    bool whole = !has_end || side.on_device || is_pinned_box(box, side);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult find_sides(const Given& from, const Given& to, Box& box) {
    auto result = find_side(from, box, box.from);
    return result == CUDA_SUCCESS ? find_side(to, box, box.to) : result;
}

template <class Copy>
CUresult read_box(const Copy& in, Box& box) {
    if (in.srcLOD != 0 || in.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
    box.row_bytes = in.WidthInBytes;
    box.rows = in.Height;
    box.slices = in.Depth;
    return find_sides({in.srcMemoryType, in.srcHost, in.srcDevice, in.srcArray, in.srcXInBytes, in.srcY, in.srcZ,
                       in.srcPitch, in.srcHeight},
                      {in.dstMemoryType, in.dstHost, in.dstDevice, in.dstArray, in.dstXInBytes, in.dstY, in.dstZ,
                       in.dstPitch, in.dstHeight},
                      box);
}

}  // namespace

CUresult read_2d(const CUDA_MEMCPY2D* in, Box& box) {
    if (!in) return CUDA_ERROR_INVALID_VALUE;
    box.row_bytes = in->WidthInBytes;
    box.rows = in->Height;
    return find_sides(
        {in->srcMemoryType, in->srcHost, in->srcDevice, in->srcArray, in->srcXInBytes, in->srcY, 0, in->srcPitch, 0},
        {in->dstMemoryType, in->dstHost, in->dstDevice, in->dstArray, in->dstXInBytes, in->dstY, 0, in->dstPitch, 0},
        box);
}

CUresult read_3d(const CUDA_MEMCPY3D* in, Box& box) {
    return in ? read_box(*in, box) : CUDA_ERROR_INVALID_VALUE;
}

CUresult read_3d(const CUDA_MEMCPY3D_PEER* in, Box& box) {
    box.of_peers = true;
    return in ? read_box(*in, box) : CUDA_ERROR_INVALID_VALUE;
}

CUresult read_array_line(CUarray handle, size_t offset, Box& box, BoxSide& side) {
    return place_in_array({CU_MEMORYTYPE_ARRAY, nullptr, 0, handle, offset, 0, 0, 0, 0}, box, side);
}

BoxSide line_side(CUdeviceptr address, size_t bytes) {
    BoxSide side;
    side.address = address;
    side.on_device = is_device_address(address);
    look_up_shared(side);
    side.pitch = side.slice_bytes = bytes;
    return side;
}

void flatten(Box& box) {
    bool one_rectangle = box.slices > 1 && !box.to.array && !box.from.array &&
                         box.to.slice_bytes == box.rows * box.to.pitch &&
                         box.from.slice_bytes == box.rows * box.from.pitch;
    if (one_rectangle) {
        box.rows *= box.slices;
        box.slices = 1;
    }
}

}  // namespace tnr::cuda
