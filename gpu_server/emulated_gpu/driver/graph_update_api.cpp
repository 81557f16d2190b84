// cuGraphExecUpdate, cuGraphExec...NodeSetParams and cuGraphNodeSetEnabled.
#include "gpu_server/emulated_gpu/driver/graph_node_params.hpp"
#include "gpu_server/emulated_gpu/driver/graph_update.hpp"

using namespace tnr::emulated;

namespace {

// The instance's counterpart of a node of the graph that it was made from.
template <class Call>
CUresult on_exec_node(CUgraphExec handle, CUgraphNode node_handle, Call&& call) {
    return on_exec(handle, [&](GraphExec& exec) -> CUresult {
        auto node = find<GraphNode>(node_handle);
        GraphNode* mine = node && node->graph ? exec.graph->clone_of(node->handle()) : nullptr;
        return mine ? call(exec, *mine) : CUDA_ERROR_INVALID_VALUE;
    });
}

// A single node's copy or fill may only change within one row.
bool is_flat(const NodeWork& work) {
    if (auto* copy = std::get_if<CopyWork>(&work)) return copy->copy.height == 1 && copy->copy.depth == 1;
    return true;
}

CUresult set_exec_node(CUgraphExec handle, CUgraphNode node, CUgraphNodeParams given) {
    return on_exec_node(handle, node, [&](GraphExec& exec, GraphNode& mine) -> CUresult {
        Work work;
        if (CUresult error = changed_work(*exec.graph, *mine.work, given, work)) return error;
        if (check_change(*mine.work, *work) != CU_GRAPH_EXEC_UPDATE_SUCCESS || !is_flat(*mine.work) || !is_flat(*work))
            return CUDA_ERROR_INVALID_VALUE;
        mine.work = std::move(work);
        exec.changed();
        return CUDA_SUCCESS;
    });
}

CUresult set_exec_child(CUgraphExec handle, CUgraphNode node, CUgraph child) {
    return on_exec_node(handle, node, [&](GraphExec& exec, GraphNode& mine) -> CUresult {
        auto* work = mine.work_as<ChildWork>();
        auto graph = find<Graph>(child);
        CUgraphExecUpdateResultInfo ignored{};
        if (!work || !graph) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult error = update_graph(*work->graph, *graph, ignored)) return error;
        exec.changed();
        return CUDA_SUCCESS;
    });
}

CUresult update(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* report) {
    if (!report) return CUDA_ERROR_INVALID_VALUE;
    *report = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
    return on_exec(handle, [&](GraphExec& exec) -> CUresult {
        auto graph = find<Graph>(graph_handle);
        if (!graph || graph->moved || graph->is_captured()) return CUDA_ERROR_INVALID_VALUE;
        if (exec.graph->has_updatable || graph->has_updatable) {
            report->result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
            return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
        if (CUresult error = update_graph(*exec.graph, *graph, *report)) return error;
        exec.changed();
        return CUDA_SUCCESS;
    });
}

bool can_be_disabled(const GraphNode& node) {
    return node.work_as<KernelWork>() || node.work_as<CopyWork>() || node.work_as<FillWork>();
}

}  // namespace

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* report) {
    return update(exec, graph, report);
}
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, CUgraphExecUpdateResult* result) {
    CUgraphExecUpdateResultInfo report{};
    CUresult code = update(exec, graph, &report);
    if (error_node) *error_node = report.errorNode;
    if (result) *result = report.result;
    return code;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* given) {
    if (!given) return CUDA_ERROR_INVALID_VALUE;
    if (given->type == CU_GRAPH_NODE_TYPE_GRAPH) return set_exec_child(exec, node, given->graph.graph);
    return set_exec_node(exec, node, *given);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
    return given ? set_exec_node(exec, node, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* given) {
    return given ? set_exec_node(exec, node, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* given,
                                        CUcontext context) {
    return given ? set_exec_node(exec, node, parameters_of(*given, context)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* given,
                                        CUcontext context) {
    return given ? set_exec_node(exec, node, parameters_of(*given, context)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
    return given ? set_exec_node(exec, node, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
    return given ? set_exec_node(exec, node, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
    return set_exec_child(exec, node, child);
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return set_exec_node(exec, node, record_parameters(event));
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return set_exec_node(exec, node, wait_parameters(event));
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned enabled) {
    return on_exec_node(handle, node, [&](GraphExec& exec, GraphNode& mine) -> CUresult {
        if (!can_be_disabled(mine)) return CUDA_ERROR_INVALID_VALUE;
        mine.enabled = enabled != 0;
        exec.changed();
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned* enabled) {
    return on_exec_node(handle, node, [&](GraphExec&, GraphNode& mine) -> CUresult {
        if (!enabled || !can_be_disabled(mine)) return CUDA_ERROR_INVALID_VALUE;
        *enabled = mine.enabled;
        return CUDA_SUCCESS;
    });
}
