// Copies of rectangles and boxes. A box is copied slice by slice, unless it is one rectangle after all.
#include "gpu_client/cuda/boxes.hpp"
#include "gpu_client/cuda/copies.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/pinned_work.hpp"

namespace tnr::cuda {

namespace {

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
    flatten(box);
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
