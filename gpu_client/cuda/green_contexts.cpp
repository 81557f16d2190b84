// cuGreenCtx*; streams in them: streams.cpp; what they are made of: device_resources.cpp.
#include "gpu_client/cuda/green_contexts.hpp"

#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/contexts.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/streams.hpp"
#include "gpu_client/protocol/green_records.hpp"

namespace tnr::cuda {

GreenContexts& green_contexts() {
    static auto* one = new GreenContexts;
    return *one;
}
static ConvertedContexts& converted_contexts() {
    static auto* one = new ConvertedContexts;
    return *one;
}
ResourceDescriptions& resource_descriptions() {
    static auto* one = new ResourceDescriptions;
    return *one;
}

GreenContext* green_context_behind(CUcontext handle) {
    auto* converted = converted_contexts().find(value_of(handle));
    return converted ? green_contexts().find(converted->green) : nullptr;
}

uint64_t context_behind_converted(uint64_t handle) {
    auto* green = green_context_behind(handle_of<CUcontext>(handle));
    return green ? green->context : handle;
}

GreenContext* current_green_context() {
    uint64_t handle = current_context_as_set();
    bool converted = kind_of_handle(handle) == HandleKind::converted_context;
    return converted ? green_context_behind(handle_of<CUcontext>(handle)) : nullptr;
}

static uint64_t next_green_id() {
    static std::atomic<uint64_t> last{uint64_t{1} << 32};  // never an ordinary context's
    return ++last;
}

static GreenContext& enter_green_context(Device& device) {
    GreenContext* made = nullptr;
    green_contexts().create([&](GreenContext& green, uint64_t index, uint64_t handle) {
        green.number = index + 1;
        green.handle = handle;
        green.id = next_green_id();
        green.context = device.primary_context;
        green.device = device.ordinal;
        green.converted = 0;
        made = &green;
    });
    made->converted =
        converted_contexts().create([&](ConvertedContext& one, uint64_t, uint64_t) { one.green = made->handle; });
    return *made;
}

static void forget(const GreenContext& green) {
    converted_contexts().destroy(green.converted);
    green_contexts().destroy(green.handle);
}

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
        forget(green);
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
    converted_contexts().destroy(green->converted);
    if (!green_contexts().destroy(value_of(handle))) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    auto result = call.send();
    auto released = release_primary(*device);
    return result != CUDA_SUCCESS ? result : released;
}

void forget_green_contexts_of(const Context& context) {
    auto* open = context.session.load();
    green_contexts().each([&](GreenContext& green, uint64_t) {
        if (green.context != context.handle) return;
        if (open) open->append(context.number, wire::DestroyGreenContext<>{green.number});
        forget(green);
    });
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
