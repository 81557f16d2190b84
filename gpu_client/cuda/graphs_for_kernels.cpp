// See graphs_for_kernels.hpp.
#include "gpu_client/cuda/graphs_for_kernels.hpp"

#include "gpu_client/cuda/boxes.hpp"
#include "gpu_client/cuda/contexts.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_memory.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

CUresult refuse_mirrors_for_kernels() {
    return static_cast<CUresult>(
        unsupported("a copy from or to host memory that is not pinned, in a graph that kernels launch"));
}

static CUresult share_side(Context& context, const BoxSide& side) {
    uint64_t device = 0;
    if (side.on_device) return CUDA_SUCCESS;
    auto result = find_elsewhere(context, side.address, device);
    return result == CUDA_ERROR_INVALID_VALUE ? refuse_mirrors_for_kernels() : result;
}

// Once its sides are shared, the same description means the GPU's copy of them.
static CUresult share_sides(Context& context, CUgraphNode node) {
    CUDA_MEMCPY3D copy{};
    Box box;
    if (auto result = cuGraphMemcpyNodeGetParams(node, &copy); result != CUDA_SUCCESS) return result;
    if (auto result = read_3d(&copy, box); result != CUDA_SUCCESS) return result;
    if (box.to.on_device && box.from.on_device) return CUDA_SUCCESS;
    for (auto* side : {&box.to, &box.from})
        if (auto result = share_side(context, *side); result != CUDA_SUCCESS) return result;
    return cuGraphMemcpyNodeSetParams(node, &copy);
}

static CUresult list_nodes(CUgraph graph, std::vector<CUgraphNode>& nodes) {
    size_t count = 0;
    if (auto result = cuGraphGetNodes(graph, nullptr, &count); result != CUDA_SUCCESS) return result;
    nodes.resize(count);
    return cuGraphGetNodes(graph, nodes.data(), &count);
}

static bool has_mirrors(CUgraph graph) {
    auto needs = needs_of(graph);
    return needs && !needs->copies.empty();
}

CUresult prepare_for_kernels(CUgraph graph) {
    if (!has_mirrors(graph)) return CUDA_SUCCESS;
    Context* context = nullptr;
    std::vector<CUgraphNode> nodes;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    if (auto result = list_nodes(graph, nodes); result != CUDA_SUCCESS) return result;
    for (auto node : nodes) {
        auto type = CU_GRAPH_NODE_TYPE_EMPTY;
        auto result = cuGraphNodeGetType(node, &type);
        if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEMCPY) result = share_sides(*context, node);
        if (result != CUDA_SUCCESS) return result;
    }
    return has_mirrors(graph) ? refuse_mirrors_for_kernels() : CUDA_SUCCESS;  // of graphs inside it
}

void name_for_kernels(CUgraphExec& exec) {
    auto* object = find_graph_exec(exec);
    RemoteCall call(wire::GraphForKernels<>{object->number});
    wire::GraphForKernels<>::Reply reply;
    if (call.send() != CUDA_SUCCESS || call.take(reply) != CUDA_SUCCESS || !name_by_driver(exec, reply.name))
        log_once(LogLevel::warning, "kernels cannot launch a graph that was instantiated for that");
}

bool is_for_kernels(CUgraphExec exec) {
    auto* object = find_graph_exec(exec);
    return object && object->handle != value_of(exec);
}

}  // namespace tnr::cuda
