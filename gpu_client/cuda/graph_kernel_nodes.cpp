// Kernels as nodes of graphs.
#include <cstring>

#include "gpu_client/cuda/graph_nodes.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/launch_checks.hpp"
#include "gpu_client/cuda/libraries.hpp"
#include "gpu_client/cuda/mirrors.hpp"

namespace tnr::cuda {

namespace {

// The same in all versions of the call, which differ in what comes behind.
CUDA_KERNEL_NODE_PARAMS of_today(const CUDA_KERNEL_NODE_PARAMS_v1& old) {
    return {old.func,      old.gridDimX,       old.gridDimY,     old.gridDimZ, old.blockDimX, old.blockDimY,
            old.blockDimZ, old.sharedMemBytes, old.kernelParams, old.extra,    nullptr,       nullptr};
}

// Null: there is none.
Function* function_of(const CUDA_KERNEL_NODE_PARAMS& given) {
    return given.func ? find_function(given.func) : find_function(given.kern);
}

// `parameters` is what the work's parameters lie in.
CUresult read_kernel(const CUDA_KERNEL_NODE_PARAMS* given, Parameters& parameters, wire::KernelWork<>& work) {
    if (!given) return CUDA_ERROR_INVALID_VALUE;
    auto* function = function_of(*given);
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    wire::Launch<> shape{.grid = {given->gridDimX, given->gridDimY, given->gridDimZ},
                         .block = {given->blockDimX, given->blockDimY, given->blockDimZ},
                         .shared_bytes = given->sharedMemBytes};
    if (auto result = check_shape(shape, false, *find_device(context->device), *function); result != CUDA_SUCCESS)
        return result;
    auto result = collect_parameters(*context, *function->info.load(), given->kernelParams, given->extra, parameters);
    work = {function->number,
            shape.grid,
            shape.block,
            shape.shared_bytes,
            {static_cast<const std::byte*>(parameters.buffer), parameters.bytes},
            given->extra != nullptr};
    return result;
}

CUresult find_numbered_function(uint64_t number, CUfunction& handle) {
    Library* library = nullptr;
    libraries().each([&](Library& one, uint64_t) {
        if (one.number == number >> wire::function_index_bits) library = &one;
    });
    size_t index = number & ((uint64_t{1} << wire::function_index_bits) - 1);
    if (!library || index >= library->code.load()->kernels.size()) return CUDA_ERROR_INVALID_HANDLE;
    uint64_t value = 0;
    auto result = kernel_handle(*library, index, value);
    handle = handle_of<CUfunction>(value);
    return result;
}

// The runtime knows the kernel again by `kern`.
CUresult show_kernel(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TableCall call(wire::GetKernelNode<>::op, wire::GetKernelNode<>::way);
    call.handle(handle);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::GetKernelNode<>::Reply work;
    if (auto result = call.take(work); result != CUDA_SUCCESS) return result;
    CUfunction function = nullptr;
    if (auto result = find_numbered_function(work.kernel, function); result != CUDA_SUCCESS) return result;
    auto shown = std::make_shared<ShownKernel>();
    shown->bytes.assign(work.parameters.begin(), work.parameters.end());
    shown->size = shown->bytes.size();
    if (work.as_buffer)
        shown->pointers = {CU_LAUNCH_PARAM_BUFFER_POINTER, shown->bytes.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                           &shown->size, CU_LAUNCH_PARAM_END};
    else
        for (auto& parameter : find_function(function)->info.load()->parameters) {
            if (size_t{parameter.offset} + parameter.size > shown->bytes.size()) return CUDA_ERROR_UNKNOWN;
            shown->pointers.push_back(shown->bytes.data() + parameter.offset);
        }
    auto* pointers = shown->pointers.data();
    auto [x, y, z] = work.grid;
    auto [block_x, block_y, block_z] = work.block;
    *out = {function,
            x,
            y,
            z,
            block_x,
            block_y,
            block_z,
            work.shared_bytes,
            work.as_buffer ? nullptr : pointers,
            work.as_buffer ? pointers : nullptr,
            handle_of<CUkernel>(value_of(function)),
            handle_of<CUcontext>(current_context_handle())};
    if (auto* node = find_graph_node(handle)) node->kernel = std::move(shown);
    return CUDA_SUCCESS;
}

// The driver's rules for shapes were checked. Clusters have more of them.
bool is_plain_kernel(const CUDA_KERNEL_NODE_PARAMS& given) {
    auto& kernel = *function_of(given)->info.load();
    constexpr auto clusters = CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET;
    return clusters < kernel.attribute_count && kernel.attributes[clusters].load() == 0 &&
           (!given.ctx || value_of(given.ctx) == current_context_handle());
}

CUresult add_kernel(const NodePlace& place, const CUDA_KERNEL_NODE_PARAMS* given) {
    Parameters parameters;
    wire::KernelWork<> work;
    if (auto result = read_kernel(given, parameters, work); result != CUDA_SUCCESS) return result;
    const bool plain = is_plain_kernel(*given);
    auto result = add_node(wire::AddKernelNode<>::op, place, work, plain);
    if (result != CUDA_SUCCESS) return result;
    if (auto* node = find_graph_node(*place.out); node && plain) node->function = work.kernel;
    return result;
}
// The same kernel with other parameters: the driver has taken it before.
bool has_kernel(const GraphNode* node, const wire::KernelWork<>& work) {
    return node && node->function != 0 && node->function == work.kernel;
}
// Nodes that came later are none of the instance's.
bool has_node(CUgraphExec handle, const GraphNode* node) {
    auto* exec = find_graph_exec(handle);
    return exec && node && exec->graph != 0 && exec->graph == node->graph && node->number < exec->number;
}
CUresult set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
    Parameters parameters;
    wire::KernelWork<> work;
    auto result = read_kernel(given, parameters, work);
    if (result != CUDA_SUCCESS) return result;
    auto* known = find_graph_node(node);
    const bool plain = has_kernel(known, work);
    if (known && !plain) known->function = 0;
    return set_node(wire::SetKernelNode<>::op, node, work, plain);
}
CUresult set_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
    Parameters parameters;
    wire::KernelWork<> work;
    auto result = read_kernel(given, parameters, work);
    if (result != CUDA_SUCCESS) return result;
    if (auto needs = needs_of(exec))
        if (result = refuse_late_sharing(needs->copies); result != CUDA_SUCCESS) return result;
    auto* known = find_graph_node(node);
    return set_exec_node(wire::SetExecKernelNode<>::op, exec, node, work,
                         has_kernel(known, work) && has_node(exec, known));
}

}  // namespace

// What the driver refuses depends on it.
static void note_more_said(CUgraphNode handle) {
    if (auto* node = find_graph_node(handle)) node->function = 0;
}
void note_cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode) {
    note_more_said(to);
}

// The name by which kernels may change the node is the driver's.
void note_cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue* value) {
    note_more_said(node);
    auto* out = const_cast<CUkernelNodeAttrValue*>(value);  // where cuda.h says that it is returned
    if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) (void)cuGraphKernelNodeGetAttribute(node, id, out);
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                         const CUDA_KERNEL_NODE_PARAMS* given) {
    return guarded("cuGraphAddKernelNode", [&] { return add_kernel({out, graph, dependencies, count}, given); });
}
CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                      const CUDA_KERNEL_NODE_PARAMS_v1* old) {
    auto given = old ? of_today(*old) : CUDA_KERNEL_NODE_PARAMS{};
    return cuGraphAddKernelNode_v2(out, graph, dependencies, count, old ? &given : nullptr);
}
CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
    return guarded("cuGraphKernelNodeGetParams", [&] { return show_kernel(node, out); });
}
CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
    CUDA_KERNEL_NODE_PARAMS all{};
    auto result = cuGraphKernelNodeGetParams_v2(node, out ? &all : nullptr);
    if (result == CUDA_SUCCESS)
        *out = {all.func,      all.gridDimX,  all.gridDimY,       all.gridDimZ,     all.blockDimX,
                all.blockDimY, all.blockDimZ, all.sharedMemBytes, all.kernelParams, all.extra};
    return result;
}
CUresult CUDAAPI cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
    return guarded("cuGraphKernelNodeSetParams", [&] { return set_kernel(node, given); });
}
CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* old) {
    auto given = old ? of_today(*old) : CUDA_KERNEL_NODE_PARAMS{};
    return cuGraphKernelNodeSetParams_v2(node, old ? &given : nullptr);
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS* given) {
    return guarded("cuGraphExecKernelNodeSetParams", [&] { return set_kernel(exec, node, given); });
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v1* old) {
    auto given = old ? of_today(*old) : CUDA_KERNEL_NODE_PARAMS{};
    return cuGraphExecKernelNodeSetParams_v2(exec, node, old ? &given : nullptr);
}

}  // extern "C"
