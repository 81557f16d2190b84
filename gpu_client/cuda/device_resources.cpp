// cuDevResource*: what of a device can be split for green contexts. The program's CUdevResource has the worker's number
// of it in its private part (green_records.hpp).
#include <algorithm>
#include <cstring>

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/green_contexts.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/green_records.hpp"

namespace tnr::cuda {

namespace {

struct Private {
    uint64_t mark = 0;  // tells what we have filled in from what we have not
    uint64_t number = 0;
    int device = -1;
};
constexpr uint64_t resource_mark = 0x656372756f736572;
static_assert(sizeof(Private) <= sizeof(CUdevResource::_internal_padding));
static_assert(wire::resource_told_bytes == sizeof(CUdevResource::_oversize));

CUdevResource as_resource(const wire::DeviceResource& told, int device) {
    CUdevResource resource{};
    if (told.number == 0) return resource;
    Private ours{resource_mark, told.number, device};
    resource.type = static_cast<CUdevResourceType>(told.type);
    std::memcpy(resource._internal_padding, &ours, sizeof ours);
    std::memcpy(resource._oversize, told.told.data(), told.told.size());
    return resource;
}

CUresult read_resource(const CUdevResource& resource, Private& ours) {
    if (resource.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    std::memcpy(&ours, resource._internal_padding, sizeof ours);
    bool known = ours.mark == resource_mark && find_device(ours.device);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

// Asks in a context of the program's, or in none.
template <class Question>
CUresult ask(const Question& question, CUdevResource* out, int device, Context* context) {
    RemoteCall call(question);
    if (context)
        call.in_context(context);
    else
        call.on(*find_device(device));
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::ResourceReply reply;
    if (auto result = call.take(reply); result != CUDA_SUCCESS) return result;
    *out = as_resource(reply.resource, device);
    return CUDA_SUCCESS;
}

CUresult split(CUdevResource* result, unsigned* groups, const CUdevResource* input, CUdevResource* remaining,
               unsigned flags, unsigned least) {
    if (!groups || !input || (result && *groups == 0)) return CUDA_ERROR_INVALID_VALUE;
    Private from;
    if (auto error = read_resource(*input, from); error != CUDA_SUCCESS) return error;
    unsigned room = result ? std::min(*groups, wire::resource_groups_max) : 0;
    RemoteCall call(wire::SplitResource<>{from.number, !result, room, flags, least});
    call.on(*find_device(from.device));
    if (auto error = call.send(); error != CUDA_SUCCESS) return error;
    wire::SplitResource<>::Reply reply;
    if (auto error = call.take(reply); error != CUDA_SUCCESS) return error;
    if (result && (reply.count > room || reply.groups.size() != reply.count)) return CUDA_ERROR_UNKNOWN;
    *groups = reply.count;
    if (!result) return CUDA_SUCCESS;
    for (auto& group : reply.groups) *result++ = as_resource(group, from.device);
    if (remaining) *remaining = as_resource(reply.remaining, from.device);
    return CUDA_SUCCESS;
}

CUresult describe(CUdevResourceDesc* out, const CUdevResource* resources, unsigned count) {
    if (!out || !resources || count == 0) return CUDA_ERROR_INVALID_VALUE;
    if (count > wire::resource_groups_max + 1) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    wire::DescribeResources<> question;
    int device = -1;
    for (unsigned i = 0; i < count; ++i) {
        Private one;
        if (auto result = read_resource(resources[i], one); result != CUDA_SUCCESS) return result;
        if (i > 0 && one.device != device) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        device = one.device;
        question.resources.push_back(one.number);
    }
    uint64_t handle = resource_descriptions().create([&](ResourceDescription& made, uint64_t index, uint64_t) {
        made.number = question.description = index + 1;
        made.device = device;
    });
    RemoteCall call(question);
    call.on(*find_device(device));
    auto result = call.send();
    if (result != CUDA_SUCCESS)
        resource_descriptions().destroy(handle);
    else
        *out = handle_of<CUdevResourceDesc>(handle);
    return result;
}

}  // namespace
}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuDeviceGetDevResource(CUdevice ordinal, CUdevResource* out, CUdevResourceType type) {
    return guarded("cuDeviceGetDevResource", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        return ask(wire::GetDeviceResource<>{device->number, static_cast<uint32_t>(type)}, out, ordinal, nullptr);
    });
}

CUresult CUDAAPI cuCtxGetDevResource(CUcontext handle, CUdevResource* out, CUdevResourceType type) {
    return guarded("cuCtxGetDevResource", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        if (auto* green = green_context_behind(handle))
            return cuGreenCtxGetDevResource(handle_of<CUgreenCtx>(green->handle), out, type);
        auto* context = find_context(handle);
        if (!context) return CUDA_ERROR_INVALID_CONTEXT;
        return ask(wire::GetContextResource<>{context->number, static_cast<uint32_t>(type)}, out, context->device,
                   context);
    });
}

CUresult CUDAAPI cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* out, CUdevResourceType type) {
    return guarded("cuGreenCtxGetDevResource", [&]() -> CUresult {
        auto* green = find_green_context(handle);
        if (!green) return CUDA_ERROR_INVALID_CONTEXT;
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        return ask(wire::GetGreenResource<>{green->number, static_cast<uint32_t>(type)}, out, green->device,
                   contexts().find(green->context));
    });
}

CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups, const CUdevResource* input,
                                             CUdevResource* remaining, unsigned int flags, unsigned int least) {
    return guarded("cuDevSmResourceSplitByCount",
                   [&] { return split(result, groups, input, remaining, flags, least); });
}

CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources, unsigned int count) {
    return guarded("cuDevResourceGenerateDesc", [&] { return describe(out, resources, count); });
}

}  // extern "C"
