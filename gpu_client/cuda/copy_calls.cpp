// The plain copies. Their names say the direction, except cuMemcpy's: there the addresses tell.
#include <algorithm>

#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/copies.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/pinned_work.hpp"
#include "gpu_client/cuda/shared_memory.hpp"
#include "gpu_client/cuda/streams.hpp"

using namespace tnr::cuda;

static HostRows host(const void* address, size_t bytes) {
    return {static_cast<std::byte*>(const_cast<void*>(address)), bytes, 1, bytes};
}

static CUresult on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool wait);

// Memory that the program shares with the GPU is copied there.
static CUdeviceptr unified(CUdeviceptr address) {
    SharedMemory shared;
    bool here = find_shared(address, shared) && address - shared.host < shared.bytes;
    return here ? shared.device + (address - shared.host) : address;
}

// Addresses are unified: what a program names as the host's may be the device's all the same.
static CUresult to_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool wait) {
    if (is_device_address(from)) return on_device(to, from, bytes, stream, wait);
    if (leaves_pinned(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    const auto here = host(handle_of<const void*>(from), bytes);
    if (is_pinned(to)) return copy_on_host(host(handle_of<void*>(to), bytes), here, stream, wait);
    return copy_to_device({to, bytes}, here, stream, wait);
}

static CUresult from_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool wait) {
    if (is_device_address(to)) return on_device(to, from, bytes, stream, wait);
    if (leaves_pinned(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    const auto here = host(handle_of<void*>(to), bytes);
    if (is_pinned(from)) return copy_on_host(here, host(handle_of<void*>(from), bytes), stream, wait);
    return copy_from_device(here, {from, bytes}, stream, wait);
}

static CUresult between(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool wait) {
    bool there = is_device_address(to), here = !is_device_address(from);
    if (there && here) return to_device(to, from, bytes, stream, wait);
    if (there) return copy_on_device({to, bytes}, {from, bytes}, bytes, 1, stream, wait);
    if (!here) return from_device(to, from, bytes, stream, wait);
    return copy_on_host(host(handle_of<void*>(to), bytes), host(handle_of<const void*>(from), bytes), stream, wait);
}

// Pinned memory has a device address, too; pageable memory has none.
static CUresult on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool wait) {
    if (is_pinned(to) || is_pinned(from)) {
        auto addressable = [bytes](CUdeviceptr address) {
            return device_of_address(address) || is_device_address(address) ||
                   (is_pinned(address) && !leaves_pinned(address, bytes));
        };
        bool sound = bytes == 0 || (addressable(to) && addressable(from));
        return sound ? between(to, from, bytes, stream, wait) : CUDA_ERROR_INVALID_VALUE;
    }
    return copy_on_device({to, bytes}, {from, bytes}, bytes, 1, stream, wait);
}

// How much of the memory lies in one piece that the program has registered; all, if it has not.
static size_t in_one_range(CUdeviceptr address, size_t bytes) {
    PinnedRange range;
    const bool registered = find_pinned(handle_of<const void*>(address), 1, range) && range.registered;
    return registered ? std::min<size_t>(bytes, range.address + range.bytes - address) : bytes;
}

// Pieces that the program has registered side by side are one to it, but the GPU may have each of them elsewhere.
static CUresult copy(decltype(between)* part, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream,
                     bool wait) {
    if (!anything_shared()) return part(to, from, bytes, stream, wait);
    auto next = [&] { return std::min(in_one_range(to, bytes), in_one_range(from, bytes)); };
    auto leaves = [&](CUdeviceptr side) { return is_pinned_in_part(handle_of<const void*>(side), bytes); };
    size_t count = next();
    if (count < bytes && (leaves(to) || leaves(from))) return CUDA_ERROR_INVALID_VALUE;
    for (;; count = next()) {
        auto result = part(unified(to), unified(from), count, stream, wait);
        if (result != CUDA_SUCCESS || count == bytes) return result;
        to += count, from += count, bytes -= count;
    }
}

namespace tnr::cuda {

// A graph's copy has one context, so drivers refuse to capture one between two devices that names both.
CUresult check_cuMemcpyPeerAsync(CUdeviceptr, CUcontext to, CUdeviceptr, CUcontext from, size_t, CUstream in) {
    StreamRef stream;
    auto *there = find_context(to), *here = find_context(from);
    if (!there || !here || there->device == here->device) return CUDA_SUCCESS;
    auto result = resolve_stream(in, stream);
    return result == CUDA_SUCCESS && is_captured(stream) ? refuse_in_capture(stream) : result;
}

// With pinned memory, whose address is all devices', the contexts say nothing more than the addresses.
CUresult pinned_cuMemcpyPeer(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes) {
    if (!find_context(there) || !find_context(here)) return CUDA_ERROR_INVALID_CONTEXT;
    return copy(::on_device, to, from, bytes, nullptr, true);
}
CUresult pinned_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes,
                                  CUstream stream) {
    if (!find_context(there) || !find_context(here)) return CUDA_ERROR_INVALID_CONTEXT;
    return copy(::on_device, to, from, bytes, stream, false);
}

}  // namespace tnr::cuda

extern "C" {

CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return guarded("cuMemcpyHtoD", [&] { return copy(to_device, to, value_of(from), bytes, nullptr, true); });
}
CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    return guarded("cuMemcpyHtoDAsync", [&] { return copy(to_device, to, value_of(from), bytes, stream, false); });
}
CUresult CUDAAPI cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return guarded("cuMemcpyDtoH", [&] { return copy(from_device, value_of(to), from, bytes, nullptr, true); });
}
CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return guarded("cuMemcpyDtoHAsync", [&] { return copy(from_device, value_of(to), from, bytes, stream, false); });
}
CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return guarded("cuMemcpyDtoD", [&] { return copy(on_device, to, from, bytes, nullptr, true); });
}
CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return guarded("cuMemcpyDtoDAsync", [&] { return copy(on_device, to, from, bytes, stream, false); });
}
CUresult CUDAAPI cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return guarded("cuMemcpy", [&] { return copy(between, to, from, bytes, nullptr, true); });
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return guarded("cuMemcpyAsync",
                   [&] { return copy(between, to, from, bytes, stream, is_done_at_once(to, from, stream)); });
}

}  // extern "C"
