// cuGreenCtx*; streams in them: streams.cpp; what they are made of: device_resources.cpp.
#include "gpu_client/cuda/contexts.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/green_contexts.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/green_records.hpp"

namespace tnr::cuda {

static CUresult create_green_context(CUgreenCtx* out, CUdevResourceDesc described, CUdevice ordinal, unsigned flags) {
    auto* description = resource_descriptions().find(value_of(described));
    if (!out || !description) return CUDA_ERROR_INVALID_VALUE;
    auto* device = find_device(ordinal);
    if (!device) return CUDA_ERROR_INVALID_DEVICE;
    if (description->device != ordinal) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = retain_primary(*device); result != CUDA_SUCCESS) return result;
    auto& green = enter_green_context(*device);
    RemoteCall call(wire::CreateGreenContext<>{green.number, description->number, device->number, flags});
    call.in_context(contexts().find(device->primary_context));
    if (auto result = call.send(); result != CUDA_SUCCESS) {
        forget_green_context(green);
        (void)release_primary(*device);
        return result;
    }
    contexts().find(device->primary_context)->nonblocking_streams++;
    *out = handle_of<CUgreenCtx>(green.handle);
    return CUDA_SUCCESS;
}

static CUresult destroy_green_context(CUgreenCtx handle) {
    auto* green = find_green_context(handle);
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    end_streams_of(*green);
    RemoteCall call(wire::DestroyGreenContext<>{green->number});
    call.in_context(contexts().find(green->context));
    auto* device = find_device(green->device);
    if (!forget_green_context(*green)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    auto result = call.send();
    auto released = release_primary(*device);
    return result != CUDA_SUCCESS ? result : released;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc description, CUdevice device, unsigned int flags) {
    return guarded("cuGreenCtxCreate", [&] { return create_green_context(out, description, device, flags); });
}
CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx green) {
    return guarded("cuGreenCtxDestroy", [&] { return destroy_green_context(green); });
}

CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx handle) {
    return guarded("cuCtxFromGreenCtx", [&]() -> CUresult {
        auto* green = find_green_context(handle);
        if (!green) return CUDA_ERROR_INVALID_CONTEXT;
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        *out = handle_of<CUcontext>(green->converted);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* id) {
    return guarded("cuGreenCtxGetId", [&]() -> CUresult {
        if (!id) return CUDA_ERROR_INVALID_VALUE;
        auto* green = handle ? find_green_context(handle) : current_green_context();
        if (!green) return CUDA_ERROR_INVALID_CONTEXT;
        *id = green->id;
        return CUDA_SUCCESS;
    });
}

// The null stream and blocking streams of a green context are the primary one's, so its work is more than what its own
// streams have.
CUresult CUDAAPI cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
    return guarded("cuGreenCtxRecordEvent", [&] {
        auto* green = find_green_context(handle);
        return green ? cuCtxRecordEvent(handle_of<CUcontext>(green->context), event) : CUDA_ERROR_INVALID_CONTEXT;
    });
}
CUresult CUDAAPI cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
    return guarded("cuGreenCtxWaitEvent", [&] {
        auto* green = find_green_context(handle);
        return green ? cuCtxWaitEvent(handle_of<CUcontext>(green->context), event) : CUDA_ERROR_INVALID_CONTEXT;
    });
}

}  // extern "C"
