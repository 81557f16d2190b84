// Nodes that write words and wait for them.
#include <bit>

#include "gpu_client/cuda/graph_nodes.hpp"
#include "gpu_client/cuda/guarded.hpp"

namespace tnr::cuda {

// What cuda.h allows. It is looked at before the array is.
static constexpr unsigned operations_max = 256;

CUresult check_cuStreamBatchMemOp(CUstream, unsigned count, CUstreamBatchMemOpParams*, unsigned) {
    return count <= operations_max ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult check_cuStreamBatchMemOp_v2(CUstream, unsigned count, CUstreamBatchMemOpParams*, unsigned) {
    return count <= operations_max ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

namespace {

CUresult read_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS* given, wire::BatchWork<>& work) {
    if (!given || (given->count != 0 && !given->paramArray) || given->count > operations_max)
        return CUDA_ERROR_INVALID_VALUE;
    using Operation = decltype(work.operations)::value_type;
    for (unsigned i = 0; i < given->count; ++i)
        work.operations.push_back(std::bit_cast<Operation>(given->paramArray[i]));
    work.flags = given->flags;
    return number_of(given->ctx, work.context);
}

CUresult show_batch(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TableCall call(wire::GetBatchNode<>::op, wire::GetBatchNode<>::way);
    call.handle(handle);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::GetBatchNode<>::Reply work;
    if (auto result = call.take(work); result != CUDA_SUCCESS) return result;
    auto shown = std::make_shared<std::vector<CUstreamBatchMemOpParams>>();
    for (auto& operation : work.operations) shown->push_back(std::bit_cast<CUstreamBatchMemOpParams>(operation));
    auto* context = contexts().at(work.context - 1);
    *out = {handle_of<CUcontext>(context ? context->handle : 0), static_cast<unsigned>(shown->size()), shown->data(),
            work.flags};
    if (auto* node = find_graph_node(handle)) node->batch = std::move(shown);
    return CUDA_SUCCESS;
}

}  // namespace

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                          size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
    return guarded("cuGraphAddBatchMemOpNode", [&]() -> CUresult {
        wire::BatchWork<> work;
        if (auto result = read_batch(given, work); result != CUDA_SUCCESS) return result;
        return add_node(wire::AddBatchNode<>::op, {out, graph, dependencies, count}, work);
    });
}
CUresult CUDAAPI cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
    return guarded("cuGraphBatchMemOpNodeGetParams", [&] { return show_batch(node, out); });
}
CUresult CUDAAPI cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
    return guarded("cuGraphBatchMemOpNodeSetParams", [&]() -> CUresult {
        wire::BatchWork<> work;
        if (auto result = read_batch(given, work); result != CUDA_SUCCESS) return result;
        return set_node(wire::SetBatchNode<>::op, node, work);
    });
}
CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
    return guarded("cuGraphExecBatchMemOpNodeSetParams", [&]() -> CUresult {
        wire::BatchWork<> work;
        if (auto result = read_batch(given, work); result != CUDA_SUCCESS) return result;
        return set_exec_node(wire::SetExecBatchNode<>::op, exec, node, work);
    });
}

}  // extern "C"
