// See boxes.hpp.
#include "gpu_client/cuda/boxes.hpp"

#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/shared_memory.hpp"

namespace tnr::cuda {

// Memory that the program shares with the GPU is copied there.
static void look_up_shared(BoxSide& side) {
    SharedMemory shared;
    if (!find_shared(side.address, shared)) return;
    side.on_device = true;
    if (side.address - shared.host < shared.bytes) side.address = shared.device + (side.address - shared.host);
}

static CUresult find_side(CUmemorytype type, const void* host, CUdeviceptr device, BoxSide& side) {
    switch (type) {
        case CU_MEMORYTYPE_HOST:
            side.address = value_of(host);
            side.on_device = is_device_address(side.address);
            look_up_shared(side);
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_DEVICE:
            side.on_device = !is_pinned(device);
            side.address = device;
            look_up_shared(side);
            return CUDA_SUCCESS;
        case CU_MEMORYTYPE_UNIFIED:
            side.on_device = is_device_address(device);
            side.address = device;
            look_up_shared(side);
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

void flatten(Box& box) {
    bool one_rectangle = box.slices > 1 && box.to.slice_bytes == box.rows * box.to.pitch &&
                         box.from.slice_bytes == box.rows * box.from.pitch;
    if (one_rectangle) {
        box.rows *= box.slices;
        box.slices = 1;
    }
}

}  // namespace tnr::cuda
