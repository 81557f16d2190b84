// cuDevResource*: which multiprocessors a device has, and how they are split for green contexts.
#include <algorithm>
#include <cstring>

#include "gpu_server/emulated_gpu/driver/green_context.hpp"

namespace tnr::emulated {

// From compute capability 9.0 on; and where somebody gives up what neighbours can do together.
static constexpr unsigned multiprocessors_step = 8, multiprocessors_step_fine = 2;
static constexpr uint64_t resource_mark = 0x656372756f736572;

static_assert(sizeof(Multiprocessors) <= sizeof(CUdevResource::_internal_padding));

CUdevResource as_resource(const Multiprocessors& some) {
    CUdevResource resource{};
    resource.type = CU_DEV_RESOURCE_TYPE_SM;
    std::memcpy(resource._internal_padding, &some, sizeof some);
    resource.sm.smCount = static_cast<unsigned>(some.count);
    resource.sm.minSmPartitionSize = multiprocessors_step;
    resource.sm.smCoscheduledAlignment = multiprocessors_step;
    return resource;
}

CUresult read_resource(const CUdevResource& resource, Multiprocessors& some) {
    if (resource.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    std::memcpy(&some, resource._internal_padding, sizeof some);
    bool ours = some.mark == resource_mark && device_of(some.device) && some.count > 0 && some.first >= 0;
    return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

namespace {

Multiprocessors all_of(const Device& device) {
    return {resource_mark, device.ordinal, 0, device.type->multiprocessors, 0};
}

uint64_t next_split() {
    static std::atomic<uint64_t> last{0};
    return ++last;
}

struct Split {
    unsigned each = 0;      // multiprocessors of a group
    unsigned possible = 0;  // groups
};

CUresult plan(const Multiprocessors& input, unsigned flags, unsigned least, Split& split) {
    auto count = static_cast<unsigned>(input.count);
    if (least > count) return CUDA_ERROR_INVALID_VALUE;
    if (input.split != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    bool fine = (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0;
    unsigned step = fine ? multiprocessors_step_fine : multiprocessors_step;
    // A wish for more than the last whole step is one for everything.
    split.each = std::min(count, std::max((least + step - 1) / step, 1u) * step);
    split.possible = count / split.each;
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tnr::emulated

using namespace tnr::emulated;

CUresult cuDeviceGetDevResource(CUdevice ordinal, CUdevResource* resource, CUdevResourceType type) {
    return initialized([&]() -> CUresult {
        if (!resource) return CUDA_ERROR_INVALID_VALUE;
        Device* device = device_of(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        *resource = as_resource(all_of(*device));
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
    return initialized([&]() -> CUresult {
        if (!resource) return CUDA_ERROR_INVALID_VALUE;
        auto context = find<Context>(handle);
        if (!context) return CUDA_ERROR_INVALID_CONTEXT;
        if (CUresult error = context->status()) return error;
        if (auto green = converted_from(handle))
            return cuGreenCtxGetDevResource(green->as<CUgreenCtx>(), resource, type);
        return cuDeviceGetDevResource(context->device.ordinal, resource, type);
    });
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned* groups, const CUdevResource* given,
                                     CUdevResource* remaining, unsigned flags, unsigned least) {
    return initialized([&]() -> CUresult {
        if (!groups || !given) return CUDA_ERROR_INVALID_VALUE;
        Multiprocessors input;
        Split split;
        if (CUresult error = read_resource(*given, input)) return error;
        if (CUresult error = plan(input, flags, least, split)) return error;
        if (!result) {
            *groups = split.possible;
            return CUDA_SUCCESS;
        }
        if (*groups == 0) return CUDA_ERROR_INVALID_VALUE;
        *groups = std::min(*groups, split.possible);
        Multiprocessors next{resource_mark, input.device, input.first, static_cast<int>(split.each), next_split()};
        for (unsigned i = 0; i < *groups; ++i, next.first += next.count) result[i] = as_resource(next);
        next.count = input.first + input.count - next.first;
        if (remaining) *remaining = next.count > 0 ? as_resource(next) : CUdevResource{};
        return CUDA_SUCCESS;
    });
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources, unsigned count) {
    return initialized([&]() -> CUresult {
        if (!out || !resources || count == 0) return CUDA_ERROR_INVALID_VALUE;
        Multiprocessors all;
        if (CUresult error = read_resource(resources[0], all)) return error;
        for (unsigned i = 1; i < count; ++i) {
            Multiprocessors more;
            if (CUresult error = read_resource(resources[i], more)) return error;
            bool together = more.device == all.device && more.split != 0 && all.split != 0;
            if (!together) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
            all.count += more.count;
        }
        if (all.count > device_of(all.device)->type->multiprocessors) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        all.split = 0;
        *out = driver().registry.add(std::make_shared<ResourceDescription>(all))->as<CUdevResourceDesc>();
        return CUDA_SUCCESS;
    });
}
