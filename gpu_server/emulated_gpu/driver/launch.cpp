#include "gpu_server/emulated_gpu/driver/launch.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/event.hpp"
#include "gpu_server/emulated_gpu/driver/module.hpp"
#include "gpu_server/emulated_gpu/driver/occupancy.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"
#include "gpu_server/emulated_gpu/driver/print.hpp"
#include "gpu_server/emulated_gpu/driver/updatable_node.hpp"

namespace tnr::emulated {
namespace {

CUresult check_shape(const LaunchRequest& request, const Function& function) {
    const ptx::Dim3 &grid = request.grid, &block = request.block;
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z) return CUDA_ERROR_INVALID_VALUE;
    if (grid.x > unsigned{grid_x_max} || grid.y > unsigned{grid_yz_max} || grid.z > unsigned{grid_yz_max})
        return CUDA_ERROR_INVALID_VALUE;
    if (block.x > unsigned{threads_per_block_max} || block.y > unsigned{threads_per_block_max} ||
        block.z > unsigned{block_z_max})
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t threads = uint64_t{block.x} * block.y * block.z;
    const ptx::Kernel& kernel = function.kernel();
    if (threads > uint64_t{threads_per_block_max} ||
        (kernel.max_threads_per_block && threads > kernel.max_threads_per_block))
        return CUDA_ERROR_INVALID_VALUE;
    if (request.dynamic_shared_bytes > static_cast<unsigned>(max_dynamic_shared(kernel, *function.settings)))
        return request.cooperative ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// All blocks of a cooperative launch must be on the device at once.
CUresult check_cooperative(const Context& context, const LaunchRequest& request, const Function& function) {
    uint64_t threads = uint64_t{request.block.x} * request.block.y * request.block.z;
    uint64_t room =
        static_cast<uint64_t>(blocks_per_multiprocessor_of(function, threads, request.dynamic_shared_bytes));
    room *= static_cast<uint64_t>(context.device.type->multiprocessors);
    unsigned __int128 blocks = static_cast<unsigned __int128>(request.grid.x) * request.grid.y * request.grid.z;
    return blocks <= room ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

// The list is pairs of a name and a value, ended by CU_LAUNCH_PARAM_END.
CUresult parameters_from_extra(void** extra, const ptx::Kernel& kernel, std::vector<std::byte>& parameters) {
    const void* buffer = nullptr;
    const size_t* size = nullptr;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = static_cast<const size_t*>(extra[1]);
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (parameters.empty()) return CUDA_SUCCESS;
    // The end of the last parameter may be missing; it is zero then.
    if (!buffer || !size || *size <= kernel.parameters.back().offset) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(parameters.data(), buffer, std::min(*size, parameters.size()));
    return CUDA_SUCCESS;
}

CUresult copy_parameters(const LaunchRequest& request, const ptx::Kernel& kernel, std::vector<std::byte>& parameters) {
    parameters.resize(kernel.parameter_bytes);
    if (request.parameters && request.extra) return CUDA_ERROR_INVALID_VALUE;
    if (request.extra) return parameters_from_extra(request.extra, kernel, parameters);
    if (!request.parameters) return kernel.parameters.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
        if (!request.parameters[i]) return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(parameters.data() + kernel.parameters[i].offset, request.parameters[i], kernel.parameters[i].size);
    }
    return CUDA_SUCCESS;
}

bool launches_block() {
    static const bool wish = [] {
        const char* value = getenv("CUDA_LAUNCH_BLOCKING");
        return value && *value == '1';
    }();
    return wish;
}

}  // namespace

CUresult choose_cluster(const LaunchRequest& request, const Function& function, ptx::Dim3& cluster) {
    const ptx::Kernel& kernel = function.kernel();
    const auto& asked = request.cluster;
    bool fixed = kernel.cluster[0] != 0, given = asked.x || asked.y || asked.z;
    if (fixed) cluster = {kernel.cluster[0], kernel.cluster[1], kernel.cluster[2]};
    if (fixed && given && (asked.x != cluster.x || asked.y != cluster.y || asked.z != cluster.z))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (!fixed && given) cluster = asked;
    if (kernel.needs_cluster && !fixed && !given) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    uint64_t blocks = uint64_t{cluster.x} * cluster.y * cluster.z;
    uint64_t most = function.settings->non_portable_cluster ? non_portable_cluster_max : portable_cluster_max;
    bool whole =
        blocks && request.grid.x % cluster.x == 0 && request.grid.y % cluster.y == 0 && request.grid.z % cluster.z == 0;
    return whole && blocks <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

CUresult prepare_launch(Context& context, const LaunchRequest& request, KernelLaunch& launch) {
    if (CUresult error = function_of(context, request.function, launch.function)) return error;
    const Function& function = *launch.function;
    if (&function.module()->context != &context) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult error = check_shape(request, function)) return error;
    if (request.cooperative)
        if (CUresult error = check_cooperative(context, request, function)) return error;
    if (CUresult error = choose_cluster(request, function, launch.cluster)) return error;
    launch.handle = request.function;
    launch.grid = request.grid;
    launch.block = request.block;
    launch.dynamic_shared_bytes = request.dynamic_shared_bytes;
    launch.cooperative = request.cooperative;
    launch.attributes = request.attributes;
    launch.updatable = request.updatable;
    launch.bound = function.module()->references.bound(*function.module());
    return copy_parameters(request, function.kernel(), launch.parameters);
}

}  // namespace tnr::emulated

using namespace tnr::emulated;

namespace {

// Of another context than the current one. None at all is fine.
bool is_foreign(const Stream& stream) {
    const Context* current = current_context();
    return current && current != &stream.context;
}

CUresult launch_on(Stream& stream, const LaunchRequest& request) {
    KernelLaunch launch;
    if (CUresult error = prepare_launch(stream.context, request, launch)) return error;
    if (!is_capturing(stream)) stream.context.fix_limits(launch.function->kernel());
    flush_print();
    if (launches_block() && !is_capturing(stream)) return enqueue_and_wait(stream, std::move(launch));
    return enqueue(stream, std::move(launch));
}

CUresult launch(CUstream handle, const LaunchRequest& request) {
    return on_stream(handle, [&](Stream& stream) {
        if (is_foreign(stream)) return CUDA_ERROR_INVALID_HANDLE;
        return launch_on(stream, request);
    });
}

// Only for nodes of graphs.
CUresult make_updatable(CUlaunchAttributeValue& value, bool captured, std::shared_ptr<UpdatableNode>& updatable) {
    if (!captured || value.deviceUpdatableKernelNode.deviceUpdatable != 1) return CUDA_ERROR_INVALID_VALUE;
    updatable = make_updatable_node();
    value.deviceUpdatableKernelNode.devNode = updatable->as<CUgraphDeviceNode>();
    return CUDA_SUCCESS;
}

// Attributes that would change the result are honoured or refused; those that only tune are ignored.
CUresult read_attributes(const CUlaunchConfig& config, bool captured, LaunchRequest& request) {
    request.attributes.assign(config.attrs, config.attrs + config.numAttrs);
    for (CUlaunchAttribute& attribute : request.attributes) {
        if (attribute.id < 0 || attribute.id >= CU_LAUNCH_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
            if (CUresult error = make_updatable(attribute.value, captured, request.updatable)) return error;
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) request.cooperative = attribute.value.cooperative != 0;
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            auto& size = attribute.value.clusterDim;
            request.cluster = {size.x, size.y, size.z};
        }
    }
    return CUDA_SUCCESS;
}

// Events that a launch attribute asks to be recorded. The emulation has no "block start" to tell apart from
// completion, and completion is later, so it keeps every promise that the event makes.
CUresult record_attribute_events(const CUlaunchConfig& config, Stream& stream) {
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const CUlaunchAttribute& attribute = config.attrs[i];
        CUevent event = attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ? attribute.value.programmaticEvent.event
                        : attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
                            ? attribute.value.launchCompletionEvent.event
                            : nullptr;
        if (!event) continue;
        bool at_start = attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
                        attribute.value.programmaticEvent.triggerAtBlockStart;
        CUgraphEdgeData data{};
        data.from_port = at_start ? CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER : CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
        data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
        if (CUresult error = record_event(event, stream, data)) return error;
    }
    return CUDA_SUCCESS;
}

CUresult launch_with_config(const CUlaunchConfig* config, bool per_thread_default, CUfunction function,
                            void** parameters, void** extra) {
    if (!config || (config->numAttrs && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
    LaunchRequest request{function,
                          {config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ},
                          config->sharedMemBytes,
                          false,
                          parameters,
                          extra};
    CUstream handle = per_thread_default ? per_thread(config->hStream) : config->hStream;
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (is_foreign(stream)) return CUDA_ERROR_INVALID_HANDLE;
        if (CUresult error = read_attributes(*config, is_capturing(stream), request)) return error;
        if (CUresult error = launch_on(stream, request)) return error;
        if (request.updatable) std::ranges::copy(request.attributes, config->attrs);  // with the node's handle
        return record_attribute_events(*config, stream);
    });
}

}  // namespace

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** parameters,
                        void** extra) {
    return launch(stream,
                  {function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, false, parameters, extra});
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** parameters,
                             void** extra) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, per_thread(stream),
                          parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                   CUstream stream, void** parameters) {
    return launch(stream,
                  {function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, true, parameters, nullptr});
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                        CUstream stream, void** parameters) {
    return cuLaunchCooperativeKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                                     per_thread(stream), parameters);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
    return launch_with_config(config, false, function, parameters, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
    return launch_with_config(config, true, function, parameters, extra);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
    return on_stream(handle, [&](Stream& stream) -> CUresult {
        if (!function) return CUDA_ERROR_INVALID_VALUE;
        return enqueue(stream, HostCall{function, data});
    });
}

CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void* data) {
    return cuLaunchHostFunc(per_thread(stream), function, data);
}
