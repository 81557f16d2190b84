// See graphs_for_kernels.hpp.
#include "gpu_client/cuda/graphs_for_kernels.hpp"

#include "gpu_client/cuda/graph_pinned_copies.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/mirrors.hpp"
#include "gpu_client/cuda/remote_call.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

static bool has_mirrors(CUgraph graph) {
    auto needs = needs_of(graph);
    return needs && !needs->copies.empty();
}

CUresult prepare_for_kernels(CUgraph graph) {
    if (!has_mirrors(graph)) return CUDA_SUCCESS;
    if (auto result = share_pinned_copies(graph); result != CUDA_SUCCESS) return result;
    return has_mirrors(graph) ? refuse_mirrors() : CUDA_SUCCESS;
}

CUresult prepare_for_body(CUgraph body, CUgraph inside) {
    return is_in_body(body) ? prepare_for_kernels(inside) : CUDA_SUCCESS;
}

CUresult prepare_for_body(CUgraph body, Context& context, const CUDA_MEMCPY3D& copy) {
    Box box;
    if (!is_in_body(body)) return CUDA_SUCCESS;
    if (auto result = read_3d(&copy, box); result != CUDA_SUCCESS) return result;
    auto result = share_box(context, box);
    return result == CUDA_ERROR_NOT_SUPPORTED ? refuse_mirrors() : result;
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
