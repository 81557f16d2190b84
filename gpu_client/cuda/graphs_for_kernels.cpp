// See graphs_for_kernels.hpp.
#include "gpu_client/cuda/graphs_for_kernels.hpp"

#include "gpu_client/cuda/graph_pinned_copies.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

CUresult refuse_mirrors_for_kernels() {
    return static_cast<CUresult>(
        unsupported("a copy from or to host memory that is not pinned, in a graph that kernels launch"));
}

static bool has_mirrors(CUgraph graph) {
    auto needs = needs_of(graph);
    return needs && !needs->copies.empty();
}

CUresult prepare_for_kernels(CUgraph graph) {
    if (!has_mirrors(graph)) return CUDA_SUCCESS;
    if (auto result = share_pinned_copies(graph); result != CUDA_SUCCESS) return result;
    return has_mirrors(graph) ? refuse_mirrors_for_kernels() : CUDA_SUCCESS;
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
