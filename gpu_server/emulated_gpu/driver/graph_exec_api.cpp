// Instances of graphs: making, launching and destroying them.
#include "gpu_server/emulated_gpu/driver/graph_exec.hpp"

#include <algorithm>

#include "gpu_server/emulated_gpu/driver/capture.hpp"
#include "gpu_server/emulated_gpu/driver/per_thread.hpp"
#include "gpu_server/emulated_gpu/driver/print.hpp"

using namespace tnr::emulated;

namespace {

constexpr cuuint64_t instantiate_flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                         CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                         CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// Of the graphs that are parts of nodes, those of children that the driver has cloned may have instances of their own.
bool is_cloned_child(const Graph& graph) {
    auto holds = [&](const auto& node) {
        auto* child = node->template work_as<ChildWork>();
        return child && child->graph.get() == &graph && child->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
    };
    return graph.holder && std::any_of(graph.holder->nodes.begin(), graph.holder->nodes.end(), holds);
}

CUresult make_exec(CUgraphExec* out, CUgraph handle, cuuint64_t flags, CUDA_GRAPH_INSTANTIATE_PARAMS& report) {
    return on_graph(handle, [&](Graph& graph) -> CUresult {
        constexpr cuuint64_t never_both =
            CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
        report.result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
        if (CUresult error = refuse_unsafe_locked()) return error;
        if (!out || (flags & ~instantiate_flags) || (flags & never_both) == never_both) return CUDA_ERROR_INVALID_VALUE;
        if (graph.held && !is_cloned_child(graph)) return CUDA_ERROR_NOT_SUPPORTED;
        std::shared_ptr<GraphExec> exec;
        CUresult result = instantiate(graph, flags, exec, report);
        if (result == CUDA_SUCCESS) *out = exec->as<CUgraphExec>();
        return result;
    });
}

template <class Call>
CUresult in_stream(CUgraphExec handle, CUstream stream_handle, Call&& call) {
    return on_stream(stream_handle, [&](Stream& stream) -> CUresult {
        flush_print();
        tnr::LockGuard lock(graph_mutex());
        auto exec = find<GraphExec>(handle);
        return exec ? call(*exec, stream) : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult instantiate_with(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters,
                          bool per_thread_default) {
    if (!parameters) return CUDA_ERROR_INVALID_VALUE;
    cuuint64_t flags = parameters->flags;
    parameters->hErrNode_out = nullptr;
    parameters->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    bool upload = flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    if (CUresult error = make_exec(exec, graph, flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD}, *parameters))
        return error;
    if (!upload) return CUDA_SUCCESS;
    CUstream stream = parameters->hUploadStream;
    return cuGraphUpload(*exec, per_thread_default ? per_thread(stream) : stream);
}

// The forms of CUDA 10 and 11, which describe errors in words.
CUresult instantiate_with_log(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes) {
    CUDA_GRAPH_INSTANTIATE_PARAMS report{};
    if (log && log_bytes) *log = 0;
    CUresult result = make_exec(exec, graph, 0, report);
    if (error_node) *error_node = report.hErrNode_out;
    if (result && log) snprintf(log, log_bytes, "the graph cannot be instantiated (%d)", report.result_out);
    return result;
}

}  // namespace

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
    CUDA_GRAPH_INSTANTIATE_PARAMS report{};
    return make_exec(exec, graph, flags, report);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
    return instantiate_with(exec, graph, parameters, false);
}
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
    return instantiate_with(exec, graph, parameters, true);
}

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes) {
    return instantiate_with_log(exec, graph, error_node, log, log_bytes);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes) {
    return instantiate_with_log(exec, graph, error_node, log, log_bytes);
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
    return on_exec(handle, [&](GraphExec& exec) -> CUresult {
        if (!flags) return CUDA_ERROR_INVALID_VALUE;
        *flags = exec.flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY};  // which is not told
        return CUDA_SUCCESS;
    });
}

TNR_LATER(cuGraphLaunch, (CUgraphExec exec, CUstream stream), in_stream(exec, stream, launch_graph))
TNR_LATER(cuGraphUpload, (CUgraphExec exec, CUstream stream), in_stream(exec, stream, upload_graph))

// What is under way goes on.
CUresult cuGraphExecDestroy(CUgraphExec handle) {
    return on_exec(handle, [](GraphExec& exec) -> CUresult {
        driver().registry.remove(exec.handle());
        return CUDA_SUCCESS;
    });
}
