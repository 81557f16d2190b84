// Graphs as such: making and destroying them, their nodes and edges.
#include "gpu_server/emulated_gpu/driver/graph.hpp"

#include <algorithm>

using namespace tnr::emulated;

namespace {

// Fills the caller's arrays as cuda.h says: what is too much for the list is set to null, and the count is what there is
// to be had.
template <class T>
CUresult list_out(const std::vector<T>& all, T* out, size_t* count) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    if (out) {
        std::copy_n(all.begin(), std::min(*count, all.size()), out);
        for (size_t i = all.size(); i < *count; ++i) out[i] = {};
    }
    *count = out ? std::min(*count, all.size()) : all.size();
    return CUDA_SUCCESS;
}

// A side of a node's edges. Data may only be left out where there is none.
CUresult edges_out(const Edges& edges, CUgraphNode* nodes, EdgeData* data, size_t* count) {
    if (!count || (data && !nodes)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> handles;
    std::vector<EdgeData> all_data;
    for (const Edge& edge : edges) {
        if (nodes && !data && !is_plain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
        handles.push_back(edge.node->as<CUgraphNode>());
        all_data.push_back(edge.data);
    }
    size_t room = *count;
    if (data) list_out(all_data, data, &room);
    return list_out(handles, nodes, count);
}

CUresult all_edges_out(const Graph& graph, CUgraphNode* from, CUgraphNode* to, EdgeData* data, size_t* count) {
    if (!count || !from != !to || (data && !from)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> froms, tos;
    std::vector<EdgeData> all_data;
    for (const auto& node : graph.nodes)
        for (const Edge& edge : node->dependents) {
            if (from && !data && !is_plain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
            froms.push_back(node->as<CUgraphNode>());
            tos.push_back(edge.node->as<CUgraphNode>());
            all_data.push_back(edge.data);
        }
    size_t room = *count, data_room = *count;
    list_out(tos, to, &room);
    if (data) list_out(all_data, data, &data_room);
    return list_out(froms, from, count);
}

// The two nodes of an edge, if both are the graph's.
bool ends_of_edge(const Graph& graph, CUgraphNode from_handle, CUgraphNode to_handle, std::shared_ptr<GraphNode>& from,
                  std::shared_ptr<GraphNode>& to) {
    from = find<GraphNode>(from_handle);
    to = find<GraphNode>(to_handle);
    return from && to && from->graph == &graph && to->graph == &graph;
}

// Cycles are found when the graph is instantiated.
CUresult connect_one(Graph& graph, CUgraphNode from_handle, CUgraphNode to_handle, const EdgeData* given) {
    const EdgeData data = given ? *given : EdgeData{};
    std::shared_ptr<GraphNode> from, to;
    if (!ends_of_edge(graph, from_handle, to_handle, from, to) ||
        !is_known(data, type_of(*from->work), type_of(*to->work)))
        return CUDA_ERROR_INVALID_VALUE;
    auto& known = to->dependencies;
    if (std::find(known.begin(), known.end(), Edge{from.get(), data}) != known.end()) return CUDA_ERROR_INVALID_VALUE;
    if (from == to) return CUDA_ERROR_INVALID_VALUE;
    graph.connect(*from, *to, data);
    return CUDA_SUCCESS;
}

// Whatever its data is, if the caller gives none.
CUresult disconnect_one(Graph& graph, CUgraphNode from_handle, CUgraphNode to_handle, const EdgeData* data) {
    std::shared_ptr<GraphNode> from, to;
    if (graph.has_memory) return CUDA_ERROR_NOT_SUPPORTED;
    if (!ends_of_edge(graph, from_handle, to_handle, from, to)) return CUDA_ERROR_INVALID_VALUE;
    return graph.disconnect(*from, *to, data) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <class One>
CUresult for_each_edge(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, const EdgeData* data,
                       size_t count, One&& one) {
    return on_graph(handle, [&](Graph& graph) -> CUresult {
        if (count && (!from || !to)) return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count; ++i)
            if (CUresult error = one(graph, from[i], to[i], data ? &data[i] : nullptr)) return error;
        return CUDA_SUCCESS;
    });
}

}  // namespace

CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
    return with_graphs([&]() -> CUresult {
        if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
        *graph = make_graph(true)->as<CUgraph>();
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphDestroy(CUgraph handle) {
    return on_graph(handle, [&](Graph& graph) -> CUresult {
        if (graph.held) return CUDA_ERROR_INVALID_VALUE;
        if (graph.is_captured()) return CUDA_ERROR_ILLEGAL_STATE;
        unlist(graph);
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphClone(CUgraph* copy, CUgraph handle) {
    return on_graph(handle, [&](Graph& graph) -> CUresult {
        if (!copy) return CUDA_ERROR_INVALID_VALUE;
        if (graph.is_unique()) return CUDA_ERROR_NOT_SUPPORTED;
        *copy = clone(graph, true)->as<CUgraph>();
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode original, CUgraph copy) {
    return on_graph(copy, [&](Graph& graph) -> CUresult {
        auto node = find<GraphNode>(original);
        if (!found || !node) return CUDA_ERROR_INVALID_VALUE;
        GraphNode* counterpart = graph.clone_of(node->handle());
        if (!counterpart) return CUDA_ERROR_INVALID_VALUE;
        *found = counterpart->as<CUgraphNode>();
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
    return on_node(handle, [&](GraphNode& node) -> CUresult {
        if (!type) return CUDA_ERROR_INVALID_VALUE;
        *type = type_of(*node.work);
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
    return on_node(handle, [&](GraphNode& node) -> CUresult {
        auto* kernel = node.work_as<KernelWork>();
        if (node.graph->has_memory) return CUDA_ERROR_NOT_SUPPORTED;
        if (node.graph->is_captured() || (kernel && kernel->launch.updatable)) return CUDA_ERROR_INVALID_VALUE;
        node.graph->remove(node);
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    return on_graph(handle, [&](Graph& graph) {
        std::vector<CUgraphNode> all;
        for (const auto& node : graph.nodes) all.push_back(node->as<CUgraphNode>());
        return list_out(all, nodes, count);
    });
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    return on_graph(handle, [&](Graph& graph) {
        std::vector<CUgraphNode> roots;
        for (const auto& node : graph.nodes)
            if (node->dependencies.empty()) roots.push_back(node->as<CUgraphNode>());
        std::reverse(roots.begin(), roots.end());  // the newest first, as programs expect of NVIDIA's driver
        return list_out(roots, nodes, count);
    });
}

CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
    return on_graph(handle, [&](Graph& graph) { return all_edges_out(graph, from, to, data, count); });
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
    return on_node(handle, [&](GraphNode& node) { return edges_out(node.dependencies, nodes, data, count); });
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
    return on_node(handle, [&](GraphNode& node) { return edges_out(node.dependents, nodes, data, count); });
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, size_t count) {
    return for_each_edge(graph, from, to, data, count, connect_one);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, size_t count) {
    return for_each_edge(graph, from, to, data, count, disconnect_one);
}

// As before CUDA 12.3, without data of edges.
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
    return cuGraphGetEdges_v2(graph, from, to, nullptr, count);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
    return cuGraphNodeGetDependencies_v2(node, nodes, nullptr, count);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
    return cuGraphNodeGetDependentNodes_v2(node, nodes, nullptr, count);
}
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
    return cuGraphAddDependencies_v2(graph, from, to, nullptr, count);
}
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
    return cuGraphRemoveDependencies_v2(graph, from, to, nullptr, count);
}
