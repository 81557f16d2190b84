// Copies of rectangles and boxes. A box is copied slice by slice, unless it is one rectangle after all.
#include "gpu_client/cuda/boxes.hpp"
#include "gpu_client/cuda/copies.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/pinned_work.hpp"

namespace tnr::cuda {

namespace {

// Slice number `slice` of a side.
DeviceRows device_rows(const BoxSide& side, uint64_t slice) {
    if (!side.array) return {side.address + slice * side.slice_bytes, side.pitch};
    return {0, side.pitch, side.array->number, side.x_bytes, side.y, side.z + slice};
}
HostRows host_rows(const BoxSide& side, const Box& box, uint64_t slice) {
    return {handle_of<std::byte*>(side.address + slice * side.slice_bytes), box.row_bytes, box.rows, side.pitch};
}

CUresult copy_slice(const Box& box, uint64_t slice, CUstream stream, bool wait) {
    if (box.to.on_device && box.from.on_device)
        return copy_on_device(device_rows(box.to, slice), device_rows(box.from, slice), box.row_bytes, box.rows, stream,
                              wait, box.of_peers);
    if (box.to.on_device)
        return copy_to_device(device_rows(box.to, slice), host_rows(box.from, box, slice), stream, wait);
    if (box.from.on_device)
        return copy_from_device(host_rows(box.to, box, slice), device_rows(box.from, slice), stream, wait);
    return copy_on_host(host_rows(box.to, box, slice), host_rows(box.from, box, slice), stream, wait);
}

template <class Copy>
bool is_done_at_once(const Copy& in, CUstream stream) {
    auto address = [](CUmemorytype type, const void* host, CUdeviceptr device) {
        return type == CU_MEMORYTYPE_HOST ? value_of(host) : type == CU_MEMORYTYPE_UNIFIED ? device : 0;
    };
    const auto to = address(in.dstMemoryType, in.dstHost, in.dstDevice);
    const auto from = address(in.srcMemoryType, in.srcHost, in.srcDevice);
    return to != 0 && from != 0 && tnr::cuda::is_done_at_once(to, from, stream);
}

CUresult copy_2d(const CUDA_MEMCPY2D* in, CUstream stream, bool wait) {
    Box box;
    auto result = read_2d(in, box);
    return result == CUDA_SUCCESS ? copy_box(box, stream, wait || is_done_at_once(*in, stream)) : result;
}

template <class Copy>
CUresult copy_3d(const Copy* in, CUstream stream, bool wait) {
    Box box;
    auto result = read_3d(in, box);
    return result == CUDA_SUCCESS ? copy_box(box, stream, wait || is_done_at_once(*in, stream)) : result;
}

// One line between an array and memory, or two arrays. What is no array is an address.
struct LineEnd {
    CUarray array = nullptr;
    size_t offset = 0;
    uint64_t address = 0;
    bool is_host = false;
};

CUresult copy_line(const LineEnd& to, const LineEnd& from, size_t bytes, CUstream stream, bool wait) {
    Box box;
    box.row_bytes = bytes;
    box.rows = 1;
    auto read = [&](const LineEnd& end, BoxSide& side) {
        if (!end.is_host && end.address == 0) return read_array_line(end.array, end.offset, box, side);
        side.address = end.address;
        side.on_device = end.is_host ? is_device_address(end.address) : !is_pinned(end.address);
        side.pitch = side.slice_bytes = bytes;
        return CUDA_SUCCESS;
    };
    if (auto result = read(from, box.from); result != CUDA_SUCCESS) return result;
    if (auto result = read(to, box.to); result != CUDA_SUCCESS) return result;
    return copy_box(box, stream, wait);
}

LineEnd in_array(CUarray array, size_t offset) {
    return {array, offset, 0, false};
}
LineEnd on_host(const void* address) {
    return {nullptr, 0, value_of(address), true};
}
LineEnd on_device(CUdeviceptr address) {
    return {nullptr, 0, address, false};
}

}  // namespace

CUresult copy_box(Box box, CUstream stream, bool wait) {
    if (box.row_bytes > box.to.pitch || box.row_bytes > box.from.pitch) return CUDA_ERROR_INVALID_VALUE;
    flatten(box);
    for (uint64_t slice = 0; slice < box.slices; ++slice) {
        auto result = copy_slice(box, slice, stream, wait);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

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

// Their contexts only say where memory is, which its addresses and arrays tell, too.
CUresult CUDAAPI cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* what) {
    return guarded("cuMemcpy3DPeer", [&] { return copy_3d(what, nullptr, true); });
}
CUresult CUDAAPI cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* what, CUstream stream) {
    return guarded("cuMemcpy3DPeerAsync", [&] { return copy_3d(what, stream, false); });
}

CUresult CUDAAPI cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
    return guarded("cuMemcpyDtoA",
                   [&] { return copy_line(in_array(to, offset), on_device(from), bytes, nullptr, true); });
}
CUresult CUDAAPI cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
    return guarded("cuMemcpyAtoD",
                   [&] { return copy_line(on_device(to), in_array(from, offset), bytes, nullptr, true); });
}
CUresult CUDAAPI cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
    return guarded("cuMemcpyHtoA",
                   [&] { return copy_line(in_array(to, offset), on_host(from), bytes, nullptr, true); });
}
CUresult CUDAAPI cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
    return guarded("cuMemcpyAtoH",
                   [&] { return copy_line(on_host(to), in_array(from, offset), bytes, nullptr, true); });
}
CUresult CUDAAPI cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes) {
    return guarded("cuMemcpyAtoA", [&] {
        return copy_line(in_array(to, to_offset), in_array(from, from_offset), bytes, nullptr, true);
    });
}
CUresult CUDAAPI cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream) {
    return guarded("cuMemcpyHtoAAsync",
                   [&] { return copy_line(in_array(to, offset), on_host(from), bytes, stream, false); });
}
CUresult CUDAAPI cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes, CUstream stream) {
    return guarded("cuMemcpyAtoHAsync",
                   [&] { return copy_line(on_host(to), in_array(from, offset), bytes, stream, false); });
}

}  // extern "C"
