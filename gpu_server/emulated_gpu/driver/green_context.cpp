// cuGreenCtx*, but for cuGreenCtxStreamCreate (stream.cpp).
#include "gpu_server/emulated_gpu/driver/green_context.hpp"

#include <map>

namespace tnr::emulated {

namespace {

uint64_t next_green_id() {
    static std::atomic<uint64_t> next{uint64_t{1} << 32};  // never a context's
    return next++;
}

// By the handle of the converted context. The lock is one of the innermost.
struct Converted {
    Mutex mutex;
    std::map<uint64_t, std::weak_ptr<GreenContext>> all TNR_GUARDED_BY(mutex);
};
Converted& converted_contexts() {
    static auto& one = *new Converted;
    return one;
}

}  // namespace

GreenContext::GreenContext(Context& owner, const Multiprocessors& chosen)
    : Object(kind_of), primary(owner), some(chosen), id(next_green_id()) {}

std::shared_ptr<GreenContext> GreenContext::create(Context& primary, const Multiprocessors& some) {
    std::shared_ptr<GreenContext> green(new GreenContext(primary, some));
    driver().registry.add(green);
    green->converted_ = driver().registry.add_name(find<Context>(primary.handle()));
    primary.own(green->handle());
    LockGuard lock(converted_contexts().mutex);
    converted_contexts().all[green->converted_] = green;
    return green;
}

bool GreenContext::end() {
    if (!alive_.exchange(false)) return false;
    driver().registry.remove(handle());
    driver().registry.remove(converted_);
    LockGuard lock(converted_contexts().mutex);
    converted_contexts().all.erase(converted_);
    return true;
}

void GreenContext::dismiss() {
    end();
}

std::shared_ptr<GreenContext> converted_from(CUcontext handle) {
    LockGuard lock(converted_contexts().mutex);
    auto found = converted_contexts().all.find(reinterpret_cast<uint64_t>(handle));
    return found == converted_contexts().all.end() ? nullptr : found->second.lock();
}

}  // namespace tnr::emulated

using namespace tnr::emulated;

CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc description, CUdevice ordinal, unsigned flags) {
    return initialized([&]() -> CUresult {
        auto wanted = find<ResourceDescription>(description);
        if (!out || !wanted || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
        Device* device = device_of(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        if (wanted->some.device != ordinal) return CUDA_ERROR_INVALID_VALUE;
        CUcontext primary = nullptr;
        if (CUresult error = cuDevicePrimaryCtxRetain(&primary, ordinal)) return error;
        *out = GreenContext::create(*device->primary, wanted->some)->as<CUgreenCtx>();
        return CUDA_SUCCESS;
    });
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
    return on_green(handle, [](const std::shared_ptr<GreenContext>& green) -> CUresult {
        if (!green->end()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        green->primary.disown(green->handle());
        return cuDevicePrimaryCtxRelease_v2(green->primary.device.ordinal);
    });
}

CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx handle) {
    return on_green(handle, [&](const std::shared_ptr<GreenContext>& green) -> CUresult {
        if (!context) return CUDA_ERROR_INVALID_VALUE;
        *context = green->converted();
        return CUDA_SUCCESS;
    });
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* resource, CUdevResourceType type) {
    return on_green(handle, [&](const std::shared_ptr<GreenContext>& green) -> CUresult {
        if (!resource) return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        *resource = as_resource(green->some);
        return CUDA_SUCCESS;
    });
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* id) {
    return initialized([&]() -> CUresult {
        auto current = current_green_context();
        if (!id) return CUDA_ERROR_INVALID_VALUE;
        if (!handle && !current) return CUDA_ERROR_INVALID_CONTEXT;
        return on_green(handle ? handle : current->as<CUgreenCtx>(), [&](const std::shared_ptr<GreenContext>& green) {
            *id = green->id;
            return CUDA_SUCCESS;
        });
    });
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
    return on_green(handle, [&](const std::shared_ptr<GreenContext>& green) {
        return cuCtxRecordEvent(green->converted(), event);
    });
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
    return on_green(
        handle, [&](const std::shared_ptr<GreenContext>& green) { return cuCtxWaitEvent(green->converted(), event); });
}
