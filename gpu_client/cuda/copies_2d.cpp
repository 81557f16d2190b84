// Copies of rectangles and boxes. A box is copied slice by slice, unless it is one rectangle after all.
#include "gpu_client/cuda/copies.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/pinned_work.hpp"

namespace tnr::cuda {

namespace {

struct Side {
    bool on_device = false;
    uint64_t address = 0;  // of the first byte that is copied
    uint64_t pitch = 0;
    uint64_t slice_bytes = 0;  // from one slice to the next
};

struct Box {
    Side to, from;
    uint64_t row_bytes = 0, rows = 0, slices = 1;
};

CUresult find_side(CUmemorytype type, const void* host, CUdeviceptr device, Side& side) {
    switch (type) {
        case CU_MEMORYTYPE_HOST:
            side.address = value_of(host);
            side.on_device = is_device_address(side.address);
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_DEVICE:
            side.on_device = !is_pinned(device);
            side.address = device;
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_UNIFIED:
            side.on_device = is_device_address(device);
            side.address = device;
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_ARRAY:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult read_2d(const CUDA_MEMCPY2D* in, Box& box) {
    if (!in) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = find_side(in->srcMemoryType, in->srcHost, in->srcDevice, box.from); result != CUDA_SUCCESS)
        return result;
    if (auto result = find_side(in->dstMemoryType, in->dstHost, in->dstDevice, box.to); result != CUDA_SUCCESS)
        return result;
    box.row_bytes = in->WidthInBytes;
    box.rows = in->Height;
    box.from.pitch = in->srcPitch != 0 ? in->srcPitch : in->WidthInBytes + in->srcXInBytes;
    box.to.pitch = in->dstPitch != 0 ? in->dstPitch : in->WidthInBytes + in->dstXInBytes;
    box.from.address += in->srcY * box.from.pitch + in->srcXInBytes;
    box.to.address += in->dstY * box.to.pitch + in->dstXInBytes;
    return CUDA_SUCCESS;
}

CUresult read_3d(const CUDA_MEMCPY3D* in, Box& box) {
    if (!in) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = find_side(in->srcMemoryType, in->srcHost, in->srcDevice, box.from); result != CUDA_SUCCESS)
        return result;
    if (auto result = find_side(in->dstMemoryType, in->dstHost, in->dstDevice, box.to); result != CUDA_SUCCESS)
        return result;
    if (in->srcLOD != 0 || in->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
    box.row_bytes = in->WidthInBytes;
    box.rows = in->Height;
    box.slices = in->Depth;
    box.from.pitch = in->srcPitch != 0 ? in->srcPitch : in->WidthInBytes + in->srcXInBytes;
    box.to.pitch = in->dstPitch != 0 ? in->dstPitch : in->WidthInBytes + in->dstXInBytes;
    box.from.slice_bytes = box.from.pitch * (in->srcHeight != 0 ? in->srcHeight : in->Height + in->srcY);
    box.to.slice_bytes = box.to.pitch * (in->dstHeight != 0 ? in->dstHeight : in->Height + in->dstY);
    box.from.address += in->srcZ * box.from.slice_bytes + in->srcY * box.from.pitch + in->srcXInBytes;
    box.to.address += in->dstZ * box.to.slice_bytes + in->dstY * box.to.pitch + in->dstXInBytes;
    return CUDA_SUCCESS;
}

CUresult copy_slice(const Box& box, uint64_t to, uint64_t from, CUstream stream, bool wait) {
    DeviceRows device_to{to, box.to.pitch}, device_from{from, box.from.pitch};
    HostRows host_to{handle_of<std::byte*>(to), box.row_bytes, box.rows, box.to.pitch};
    HostRows host_from{handle_of<std::byte*>(from), box.row_bytes, box.rows, box.from.pitch};
    if (box.to.on_device && box.from.on_device)
        return copy_on_device(device_to, device_from, box.row_bytes, box.rows, stream, wait);
    if (box.to.on_device) return copy_to_device(device_to, host_from, stream, wait);
    if (box.from.on_device) return copy_from_device(host_to, device_from, stream, wait);
    return copy_on_host(host_to, host_from, stream, wait);
}

CUresult copy(Box box, CUstream stream, bool wait) {
    if (box.row_bytes > box.to.pitch || box.row_bytes > box.from.pitch) return CUDA_ERROR_INVALID_VALUE;
    bool one_rectangle = box.slices > 1 && box.to.slice_bytes == box.rows * box.to.pitch &&
                         box.from.slice_bytes == box.rows * box.from.pitch;
    if (one_rectangle) {
        box.rows *= box.slices;
        box.slices = 1;
    }
    for (uint64_t slice = 0; slice < box.slices; ++slice) {
        auto result = copy_slice(box, box.to.address + slice * box.to.slice_bytes,
                                 box.from.address + slice * box.from.slice_bytes, stream, wait);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult copy_2d(const CUDA_MEMCPY2D* in, CUstream stream, bool wait) {
    Box box;
    auto result = read_2d(in, box);
    return result == CUDA_SUCCESS ? copy(box, stream, wait) : result;
}

CUresult copy_3d(const CUDA_MEMCPY3D* in, CUstream stream, bool wait) {
    Box box;
    auto result = read_3d(in, box);
    return result == CUDA_SUCCESS ? copy(box, stream, wait) : result;
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuMemcpy2D_v2(const CUDA_MEMCPY2D* what) {
    return guarded("cuMemcpy2D", [&] { return copy_2d(what, nullptr, true); });
}
CUresult CUDAAPI cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* what) {
    return guarded("cuMemcpy2DUnaligned", [&] { return copy_2d(what, nullptr, true); });
}
CUresult CUDAAPI cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* what, CUstream stream) {
    return guarded("cuMemcpy2DAsync", [&] { return copy_2d(what, stream, false); });
}
CUresult CUDAAPI cuMemcpy3D_v2(const CUDA_MEMCPY3D* what) {
    return guarded("cuMemcpy3D", [&] { return copy_3d(what, nullptr, true); });
}
CUresult CUDAAPI cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* what, CUstream stream) {
    return guarded("cuMemcpy3DAsync", [&] { return copy_3d(what, stream, false); });
}

}  // extern "C"
