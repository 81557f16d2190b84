// Launching kernels: the call that everything else exists for. It is sent and never waited for; what can be checked
// here is refused at once, as the driver does.
#include <algorithm>
#include <cstring>
#include <vector>

#include "gpu_client/cuda/captures.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/launch_checks.hpp"
#include "gpu_client/cuda/profile.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/cuda/shared_pages.hpp"
#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

// Attributes that name an event carry its number.
static CUresult make_attribute(const CUlaunchAttribute& attribute, bool captured, wire::LaunchAttribute& record) {
    if (attribute.id < 0 || attribute.id >= CU_LAUNCH_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    record.id = static_cast<uint32_t>(attribute.id);
    static_assert(sizeof record.value == sizeof attribute.value);
    std::memcpy(record.value.data(), &attribute.value, sizeof record.value);
    CUevent named = nullptr;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) named = attribute.value.programmaticEvent.event;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
        named = attribute.value.launchCompletionEvent.event;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
        const auto wanted = attribute.value.deviceUpdatableKernelNode.deviceUpdatable;
        if (!captured || wanted != 1) return CUDA_ERROR_INVALID_VALUE;
    }
    if (named) {
        auto* event = find_event(named);
        if (!event) return CUDA_ERROR_INVALID_HANDLE;
        std::memcpy(record.value.data(), &event->number, sizeof event->number);
    }
    return CUDA_SUCCESS;
}

// The launch has become the node that a stream's next work would come after. If kernels may change it, the attribute gets
// the driver's name for it.
static CUresult return_updatable_node(const CUlaunchConfig& config) {
    constexpr auto id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
    auto* last = config.attrs + config.numAttrs;
    auto* updatable = std::find_if(config.attrs, last, [](auto& attribute) { return attribute.id == id; });
    if (updatable == last) return CUDA_SUCCESS;
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode* nodes = nullptr;
    const CUgraphEdgeData* edges = nullptr;
    size_t count = 0;
    auto result = cuStreamGetCaptureInfo_v3(config.hStream, &status, nullptr, nullptr, &nodes, &edges, &count);
    if (result != CUDA_SUCCESS) return result;
    return count == 1 ? cuGraphKernelNodeGetAttribute(nodes[0], id, &updatable->value) : CUDA_ERROR_UNKNOWN;
}

static bool is_cooperative(const CUlaunchConfig& config, uint32_t flags) {
    bool wanted = (flags & wire::launch_cooperative) != 0;
    for (unsigned i = 0; i < config.numAttrs; ++i)
        if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) wanted |= config.attrs[i].value.cooperative != 0;
    return wanted;
}

// All blocks must be on the GPU at once. The driver is asked how many fit once per shape; the answer is remembered.
static CUresult check_cooperative(CUfunction function, const CUlaunchConfig& config, const Context& context,
                                  const Device& device) {
    int fit = 0;
    auto threads = static_cast<int>(config.blockDimX * config.blockDimY * config.blockDimZ);
    const bool elsewhere = current_context_handle() != context.handle;
    if (elsewhere) (void)cuCtxPushCurrent_v2(handle_of<CUcontext>(context.handle));
    auto result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&fit, function, threads, config.sharedMemBytes);
    if (elsewhere) (void)cuCtxPopCurrent_v2(nullptr);
    if (result != CUDA_SUCCESS) return result;
    auto room =
        static_cast<uint64_t>(fit) * static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    uint64_t blocks = uint64_t{config.gridDimX} * config.gridDimY * config.gridDimZ;
    return blocks <= room ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

// Of `one_of_several` devices, whichever is current.
static CUresult launch(CUfunction handle, const CUlaunchConfig& config, uint32_t flags, void** list, void** extra,
                       bool one_of_several = false) {
    auto* function = find_function(handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    auto& kernel = *function->info.load();
    if (config.numAttrs > wire::launch_attributes_max || (config.numAttrs > 0 && !config.attrs))
        return CUDA_ERROR_INVALID_VALUE;
    StreamRef stream;
    if (auto result = resolve_stream(config.hStream, stream); result != CUDA_SUCCESS) return result;
    Context* context = nullptr;
    if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
    const auto current = current_context_handle();  // none is fine
    if (current != 0 && current != context->handle && !one_of_several) return CUDA_ERROR_INVALID_HANDLE;
    if (function->context != 0 && function->context != context->handle) return CUDA_ERROR_INVALID_HANDLE;
    if (auto result = refuse_work(stream); result != CUDA_SUCCESS) return result;

    wire::Launch<> record{function->number,
                          stream.number,
                          {config.gridDimX, config.gridDimY, config.gridDimZ},
                          {config.blockDimX, config.blockDimY, config.blockDimZ},
                          config.sharedMemBytes,
                          flags,
                          config.numAttrs,
                          0};
    auto& device = *find_device(context->device);
    const bool cooperative = is_cooperative(config, flags);
    if (auto result = check_shape(record, cooperative, device, *function); result != CUDA_SUCCESS) return result;
    if (auto result = check_cluster(config, *function); result != CUDA_SUCCESS) return result;
    if (cooperative)
        if (auto result = check_cooperative(handle, config, *context, device); result != CUDA_SUCCESS) return result;
    wire::LaunchAttribute attributes[wire::launch_attributes_max];
    for (unsigned i = 0; i < config.numAttrs; ++i)
        if (auto result = make_attribute(config.attrs[i], is_captured(stream), attributes[i]); result != CUDA_SUCCESS)
            return result;
    Parameters parameters;
    if (auto result = collect_parameters(*context, kernel, list, extra, parameters); result != CUDA_SUCCESS)
        return result;
    record.parameter_bytes = static_cast<uint32_t>(parameters.bytes);
    if (anything_shared()) parameters.pack();  // the program's buffer may lie in what the GPU is given now
    GpuTurn turn;
    if (!is_captured(stream)) turn.begin(*context, stream);

    if (profiling()) profile_kernel(function->number, kernel.name);
    auto result = submit(record.op, *context, stream,
                         {wire::packed(record),
                          std::as_bytes(std::span(attributes, config.numAttrs)),
                          {static_cast<const std::byte*>(parameters.buffer), parameters.bytes}});
    return result == CUDA_SUCCESS && is_captured(stream) ? return_updatable_node(config) : result;
}

static CUresult check_device_list(const CUDA_LAUNCH_PARAMS* list, unsigned count) {
    if (!list || count == 0 || count > devices().size()) return CUDA_ERROR_INVALID_VALUE;
    uint64_t seen = 0;
    for (unsigned i = 0; i < count; ++i) {
        auto &one = list[i], &first = list[0];
        bool same = one.gridDimX == first.gridDimX && one.gridDimY == first.gridDimY &&
                    one.gridDimZ == first.gridDimZ && one.blockDimX == first.blockDimX &&
                    one.blockDimY == first.blockDimY && one.blockDimZ == first.blockDimZ &&
                    one.sharedMemBytes == first.sharedMemBytes;
        StreamRef stream;
        Context* context = nullptr;
        if (auto result = resolve_stream(one.hStream, stream); result != CUDA_SUCCESS) return result;
        if (!same || !stream.object) return CUDA_ERROR_INVALID_VALUE;
        if (auto result = context_of_stream(stream, context); result != CUDA_SUCCESS) return result;
        const uint64_t bit = uint64_t{1} << context->device;
        if ((seen & bit) != 0) return CUDA_ERROR_INVALID_VALUE;
        seen |= bit;
    }
    return CUDA_SUCCESS;
}

// Each stream goes on when all have got here.
static CUresult meet(const CUDA_LAUNCH_PARAMS* list, unsigned count) {
    std::vector<CUevent> events;
    auto result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
        CUcontext context = nullptr;
        CUevent event = nullptr;
        result = cuStreamGetCtx(list[i].hStream, &context);
        if (result == CUDA_SUCCESS) result = cuCtxPushCurrent_v2(context);
        if (result != CUDA_SUCCESS) break;
        result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
        if (result == CUDA_SUCCESS) events.push_back(event);
        if (result == CUDA_SUCCESS) result = cuEventRecord(event, list[i].hStream);
        (void)cuCtxPopCurrent_v2(nullptr);
    }
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i)
        for (unsigned other = 0; other < count && result == CUDA_SUCCESS; ++other)
            if (other != i) result = cuStreamWaitEvent(list[i].hStream, events[other], 0);
    for (auto event : events) (void)cuEventDestroy_v2(event);  // what waits for it still does
    return result;
}

// One cooperative launch each. Kernels cannot wait for those of other devices (multi_grid_group::sync), and the
// device's attribute says so.
static CUresult launch_on_devices(const CUDA_LAUNCH_PARAMS* list, unsigned count, unsigned flags) {
    constexpr unsigned no_meeting_before = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC;
    constexpr unsigned no_meeting_after = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
    if ((flags & ~(no_meeting_before | no_meeting_after)) != 0) return CUDA_ERROR_INVALID_VALUE;
    auto result = check_device_list(list, count);
    if (result == CUDA_SUCCESS && !(flags & no_meeting_before)) result = meet(list, count);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
        auto& one = list[i];
        CUlaunchConfig config{one.gridDimX,  one.gridDimY,       one.gridDimZ, one.blockDimX, one.blockDimY,
                              one.blockDimZ, one.sharedMemBytes, one.hStream,  nullptr,       0};
        result = launch(one.function, config, wire::launch_cooperative, one.kernelParams, nullptr, true);
    }
    return result == CUDA_SUCCESS && !(flags & no_meeting_after) ? meet(list, count) : result;
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                unsigned int shared_bytes, CUstream stream, void** parameters, void** extra) {
    return guarded("cuLaunchKernel", [&] {
        CUlaunchConfig config{grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, nullptr, 0};
        return launch(function, config, 0, parameters, extra);
    });
}

CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                           unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                           unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                           void** parameters) {
    return guarded("cuLaunchCooperativeKernel", [&] {
        CUlaunchConfig config{grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, nullptr, 0};
        return launch(function, config, wire::launch_cooperative, parameters, nullptr);
    });
}

CUresult CUDAAPI cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* list, unsigned int count,
                                                      unsigned int flags) {
    return guarded("cuLaunchCooperativeKernelMultiDevice", [&] { return launch_on_devices(list, count, flags); });
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
    return guarded("cuLaunchKernelEx", [&]() -> CUresult {
        if (!config) return CUDA_ERROR_INVALID_VALUE;
        return launch(function, *config, 0, parameters, extra);
    });
}

}  // extern "C"
