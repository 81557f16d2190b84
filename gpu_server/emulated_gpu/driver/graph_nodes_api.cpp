// Nodes by their types: adding them, and reading and changing their parameters.
#include "gpu_server/emulated_gpu/driver/graph.hpp"
#include "gpu_server/emulated_gpu/driver/graph_node_params.hpp"

using namespace tnr::emulated;

namespace {

CUresult add_node(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, const EdgeData* data, size_t count,
                  CUgraphNodeParams& given) {
    return on_graph(handle, [&](Graph& graph) -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        Edges edges;
        if (CUresult error = read_edges(graph, dependencies, data, count, edges)) return error;
        for (const Edge& edge : edges)
            if (!is_known(edge.data, type_of(*edge.node->work), given.type)) return CUDA_ERROR_INVALID_VALUE;
        Work work;
        if (CUresult error = make_work(graph, given, work)) return error;
        *out = graph.add(std::move(work), edges).as<CUgraphNode>();
        return CUDA_SUCCESS;
    });
}

CUresult add_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                  CUgraphNodeParams given) {
    return add_node(out, graph, dependencies, nullptr, count, given);
}

// A node of the type whose work is T.
template <class T, class Call>
CUresult on_typed_node(CUgraphNode handle, Call&& call) {
    return on_node(handle, [&](GraphNode& node) -> CUresult {
        auto* work = node.work_as<T>();
        return work ? call(node, *work) : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult set_node(CUgraphNode handle, CUgraphNodeParams given) {
    return on_node(handle, [&](GraphNode& node) -> CUresult {
        Work work;
        if (CUresult error = changed_work(*node.graph, *node.work, given, work)) return error;
        for (auto& replaced : graphs_in(*node.work)) unlist(*replaced);
        node.work = std::move(work);
        return CUDA_SUCCESS;
    });
}

// The parameters that a typed function of cuda.h takes no context for belong to the one that the node has.
template <class T>
CUcontext context_of_node(CUgraphNode handle) {
    CUcontext context = nullptr;
    on_typed_node<T>(handle, [&](GraphNode&, const T& work) {
        context = work.context->template as<CUcontext>();
        return CUDA_SUCCESS;
    });
    return context;
}

template <class T>
CUresult get_event(CUgraphNode handle, CUevent* event) {
    return on_typed_node<T>(handle, [&](GraphNode&, const T& work) -> CUresult {
        if (!event) return CUDA_ERROR_INVALID_VALUE;
        *event = work.event->template as<CUevent>();
        return CUDA_SUCCESS;
    });
}

CUresult show_kernel(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS& out) {
    return on_typed_node<KernelWork>(handle, [&](GraphNode& node, const KernelWork& work) {
        work.show(out);
        node.shown = node.work;
        return CUDA_SUCCESS;
    });
}

}  // namespace

CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* given) {
    return given ? add_node(node, graph, dependencies, data, count, *given) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                        CUgraphNodeParams* given) {
    return cuGraphAddNode_v2(node, graph, dependencies, nullptr, count, given);
}
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* given) {
    return given ? set_node(node, *given) : CUDA_ERROR_INVALID_VALUE;
}

// ---- kernels

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* given) {
    return given ? add_node(node, graph, dependencies, count, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* given) {
    return given ? add_node(node, graph, dependencies, count, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
    return out ? show_kernel(node, *out) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
    CUDA_KERNEL_NODE_PARAMS all{};
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = show_kernel(node, all)) return error;
    *out = {all.func,      all.gridDimX,  all.gridDimY,       all.gridDimZ,     all.blockDimX,
            all.blockDimY, all.blockDimZ, all.sharedMemBytes, all.kernelParams, all.extra};
    return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
    return given ? set_node(node, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* given) {
    return given ? set_node(node, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}

// ---- copies and fills

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMCPY3D* given, CUcontext context) {
    return given ? add_node(node, graph, dependencies, count, parameters_of(*given, context))
                 : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* out) {
    return on_typed_node<CopyWork>(handle, [&](GraphNode&, const CopyWork& work) -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        *out = work.given;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* given) {
    return given ? set_node(node, parameters_of(*given, context_of_node<CopyWork>(node))) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* given, CUcontext context) {
    return given ? add_node(node, graph, dependencies, count, parameters_of(*given, context))
                 : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* out) {
    return on_typed_node<FillWork>(handle, [&](GraphNode&, const FillWork& work) -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        *out = work.given;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* given) {
    return given ? set_node(node, parameters_of(*given, context_of_node<FillWork>(node))) : CUDA_ERROR_INVALID_VALUE;
}

// ---- what the host does, other graphs, nothing

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS* given) {
    return given ? add_node(node, graph, dependencies, count, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* out) {
    return on_typed_node<HostWork>(handle, [&](GraphNode&, const HostWork& work) -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        *out = {work.call.function, work.call.data};
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
    return given ? set_node(node, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                  CUgraph child) {
    return add_node(node, graph, dependencies, count, parameters_of(child));
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* child) {
    return on_typed_node<ChildWork>(handle, [&](GraphNode&, const ChildWork& work) -> CUresult {
        if (!child) return CUDA_ERROR_INVALID_VALUE;
        *child = work.graph->as<CUgraph>();
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
    return add_node(node, graph, dependencies, count, parameters_of(CU_GRAPH_NODE_TYPE_EMPTY));
}

// ---- events

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   CUevent event) {
    return add_node(node, graph, dependencies, count, record_parameters(event));
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
    return get_event<RecordWork>(node, event);
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    return set_node(node, record_parameters(event));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 CUevent event) {
    return add_node(node, graph, dependencies, count, wait_parameters(event));
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
    return get_event<WaitWork>(node, event);
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    return set_node(node, wait_parameters(event));
}

// ---- words of memory

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
    return given ? add_node(node, graph, dependencies, count, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
    return on_typed_node<ValueWork>(handle, [&](GraphNode& node, const ValueWork& work) -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        const auto& list = work.operations.list;
        *out = {work.context->as<CUcontext>(), static_cast<unsigned>(list.size()),
                const_cast<CUstreamBatchMemOpParams*>(list.data()), work.flags};
        node.shown = node.work;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* given) {
    return given ? set_node(node, parameters_of(*given)) : CUDA_ERROR_INVALID_VALUE;
}
