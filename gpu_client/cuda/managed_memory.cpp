// See managed_memory.hpp.
#include "gpu_client/cuda/managed_memory.hpp"

#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/memory_pools.hpp"
#include "gpu_client/cuda/page_file.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

// Once for each device: what is allocated on it later is open to the others as well.
static void open_to_all(Device& device) {
    if (device.open_to_all.exchange(true)) return;
    for (auto* other : devices()) {
        if (other == &device || other->session.load() != device.session.load()) continue;
        device.memory->reached_from(other->ordinal);
        RemoteCall call(wire::MemoryAccess<>{device.number, other->number, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
        call.on(device);
        (void)call.send();  // a GPU without a way to the other one: its kernels fault there, as they should
    }
}

static CUresult allocate_pages(Context& context, uint64_t bytes, uint64_t pool, uint64_t& address) {
    auto& device = *find_device(context.device);
    if (context.session.load()->lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (bytes > device.description.memory_bytes)
        log_once(LogLevel::warning,
                 "managed and mapped memory takes as much memory of the GPU, which has less than is asked for");
    auto result = bytes > device.description.memory_bytes
                      ? CUDA_ERROR_OUT_OF_MEMORY
                      : device.memory->allocate(context, bytes, 0, pool, address, page_bytes());
    if (result != CUDA_SUCCESS) return result;
    pools_make_room(context.device);
    if (devices().size() > 1) open_to_all(device);
    return CUDA_SUCCESS;
}

CUresult allocate_shared(Context& context, SharedKind kind, uint64_t bytes, uint64_t pool, uint64_t& address) {
    if (auto result = allocate_pages(context, bytes, pool, address); result != CUDA_SUCCESS) return result;
    auto result = share_memory(context, {kind, address, address, bytes, 0});
    if (result != CUDA_SUCCESS) (void)find_device(context.device)->memory->release(address, 0);
    return result;
}

// So that page boundaries are the same for both.
CUresult share_program_memory(Context& context, uint64_t host, uint64_t bytes, uint64_t& device) {
    const uint64_t lead = host % page_bytes();
    uint64_t address = 0;
    if (auto result = allocate_pages(context, lead + bytes, 0, address); result != CUDA_SUCCESS) return result;
    device = address + lead;
    auto result = share_memory(context, {SharedKind::registered, host, device, bytes, 0});
    if (result != CUDA_SUCCESS) (void)find_device(context.device)->memory->release(address, 0);
    return result;
}

bool free_shared(uint64_t host) {
    SharedMemory found;
    if (!find_shared(host, found) || found.host != host) return false;
    const uint64_t address = found.device / page_bytes() * page_bytes();
    if (!unshare_memory(host, found.kind == SharedKind::registered)) return false;
    if (auto* device = device_of_address(address)) (void)device->memory->release(address, 0);
    return true;
}

// Variables share pages with others, so they stay everybody's.
static CUresult attach_variable(uint64_t address, size_t length, unsigned flags, const StreamRef& stream) {
    Allocation variable;
    const bool whole =
        find_allocation(address, variable) && variable.address == address && (length == 0 || length == variable.bytes);
    const bool single = flags == CU_MEM_ATTACH_SINGLE && stream.object;
    const bool sound = whole && (single || flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
    return sound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult attach(CUstream handle, uint64_t address, size_t length, unsigned flags) {
    StreamRef stream;
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) return result;
    if (is_captured(stream))
        if (auto result = refuse_in_capture(stream); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    SharedMemory found;
    if (!find_shared(address, found) || !found.is_managed()) return CUDA_ERROR_INVALID_VALUE;
    if (found.kind == SharedKind::variable) return attach_variable(address, length, flags, stream);
    if (found.host != address || (length != 0 && length != found.bytes)) return CUDA_ERROR_INVALID_VALUE;
    switch (flags) {
        case CU_MEM_ATTACH_GLOBAL:
            return attach_shared(address, 0, false);
        case CU_MEM_ATTACH_HOST:
            return attach_shared(address, 0, true);
        case CU_MEM_ATTACH_SINGLE:
            return stream.object ? attach_shared(address, stream.object->handle, false) : CUDA_ERROR_INVALID_VALUE;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned int flags) {
    return guarded("cuMemAllocManaged", [&]() -> CUresult {
        if (!out || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
            return CUDA_ERROR_INVALID_VALUE;
        if (auto refused = refuse_unsafe(); refused != CUDA_SUCCESS) return refused;
        Context* context = nullptr;
        if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
        uint64_t address = 0;
        auto result = allocate_shared(*context, SharedKind::managed, bytes, 0, address);
        if (result == CUDA_SUCCESS) *out = address;
        return result;
    });
}

CUresult CUDAAPI cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags) {
    return guarded("cuStreamAttachMemAsync", [&] { return attach(stream, address, length, flags); });
}

}  // extern "C"
