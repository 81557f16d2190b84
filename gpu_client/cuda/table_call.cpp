// See table_call.hpp.
#include "gpu_client/cuda/table_call.hpp"

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/memory.hpp"
#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

void TableCall::stream(CUstream handle) {
    StreamRef stream;
    if (auto result = resolve_stream(handle, stream); result != CUDA_SUCCESS) refuse(result);
    if (anywhere_) {
        if (auto result = detour_.begin(*anywhere_, stream); result != CUDA_SUCCESS) return refuse(result);
        stream = detour_.stream();
    }
    use(stream);
}

void TableCall::event(CUevent handle) {
    auto* event = find_event(handle);
    if (!event) return refuse(CUDA_ERROR_INVALID_HANDLE);
    put(event->number);
}

void TableCall::context(CUcontext handle) {
    auto* context = find_context(handle);
    if (!context) return refuse(CUDA_ERROR_INVALID_CONTEXT);
    put(context->number);
}

void TableCall::function(CUfunction handle) {
    auto* function = find_function(handle);
    if (!function) return refuse(CUDA_ERROR_INVALID_HANDLE);
    put(function->number);
}

void TableCall::library(CUlibrary handle) {
    auto* library = find_library(handle);
    if (!library) return refuse(CUDA_ERROR_INVALID_HANDLE);
    put(library->number);
}

void TableCall::ordinal(CUdevice device) {
    auto* found = find_device(device);
    if (!found) refuse(CUDA_ERROR_INVALID_DEVICE);
    put(found ? found->on_wire : 0);
}

void TableCall::device(CUdeviceptr address, uint64_t bytes) {
    if (!is_allocated(address, bytes)) refuse(CUDA_ERROR_INVALID_VALUE);
    put(address);
}

void TableCall::any_device(CUdeviceptr address, uint64_t bytes) {
    device(address, bytes);
    anywhere_ = address;
}

CUresult TableCall::send() {
    auto result = RemoteCall::send();
    return result == CUDA_SUCCESS && anywhere_ ? detour_.end() : result;
}

bool is_elsewhere(CUdeviceptr address) {
    Context* here = nullptr;
    return current_context(here) == CUDA_SUCCESS && context_for_memory(address, *here) != here;
}

}  // namespace tnr::cuda
