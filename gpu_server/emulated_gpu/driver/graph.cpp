#include "gpu_server/emulated_gpu/driver/graph.hpp"

#include <algorithm>
#include <unordered_set>

namespace tnr::emulated {
std::vector<std::shared_ptr<Graph>> graphs_in(const NodeWork& work) {
    if (auto* child = std::get_if<ChildWork>(&work)) return {child->graph};
    if (auto* conditional = std::get_if<ConditionalWork>(&work)) return conditional->bodies;
    return {};
}

Mutex& graph_mutex() {
    static Mutex& mutex = *new Mutex;
    return mutex;
}

bool is_plain(const EdgeData& data) {
    return data.from_port == 0 && data.to_port == 0 && data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
}

bool Edge::operator==(const Edge& other) const {
    return node == other.node && data.from_port == other.data.from_port && data.to_port == other.data.to_port &&
           data.type == other.data.type;
}

void add_missing(Edges& edges, const Edges& more) {
    for (const Edge& edge : more)
        if (std::find(edges.begin(), edges.end(), edge) == edges.end()) edges.push_back(edge);
}

// Only kernels have other ports, and these only for programmatic dependencies between kernels.
bool is_known(const EdgeData& data, CUgraphNodeType from, CUgraphNodeType to) {
    for (unsigned char byte : data.reserved)
        if (byte) return false;
    if (is_plain(data)) return true;
    bool kernels = from == CU_GRAPH_NODE_TYPE_KERNEL && to == CU_GRAPH_NODE_TYPE_KERNEL;
    bool port = data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC ||
                data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
    return kernels && port && data.to_port == 0 && data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
}

GraphNode& Graph::add(Work work, const Edges& dependencies) {
    auto node = std::make_shared<GraphNode>(*this, std::move(work));
    nodes.push_back(node);
    if (auto* child = node->work_as<ChildWork>()) has_memory |= child->graph->has_memory;
    if (auto* child = node->work_as<ChildWork>()) has_updatable |= child->graph->has_updatable;
    if (auto* kernel = node->work_as<KernelWork>()) has_updatable |= kernel->launch.updatable != nullptr;
    has_memory |= node->work_as<AllocWork>() || node->work_as<FreeWork>();
    if (node->work_as<ConditionalWork>()) ++conditional_nodes;
    if (listed) driver().registry.add(node);
    for (const Edge& edge : dependencies) connect(*edge.node, *node, edge.data);
    return *node;
}

void Graph::connect(GraphNode& from, GraphNode& to, const EdgeData& data) {
    to.dependencies.push_back({&from, data});
    from.dependents.push_back({&to, data});
}

bool Graph::disconnect(GraphNode& from, GraphNode& to, const EdgeData* data) {
    auto leads_to = [&](const GraphNode& end) {
        return [&end, data](const Edge& edge) {
            return edge.node == &end && (!data || edge == Edge{edge.node, *data});
        };
    };
    if (!std::erase_if(to.dependencies, leads_to(from))) return false;
    std::erase_if(from.dependents, leads_to(to));
    return true;
}

void Graph::remove(GraphNode& node) {
    for (const Edge& edge : node.dependencies)
        std::erase_if(edge.node->dependents, [&](const Edge& e) { return e.node == &node; });
    for (const Edge& edge : node.dependents)
        std::erase_if(edge.node->dependencies, [&](const Edge& e) { return e.node == &node; });
    for (auto& graph : graphs_in(*node.work)) unlist(*graph);
    if (node.work_as<ConditionalWork>()) --conditional_nodes;
    if (node.origin) clones_.erase(node.origin);
    if (listed) driver().registry.remove(node.handle());
    node.graph = nullptr;
    std::erase_if(nodes, [&](const auto& held) { return held.get() == &node; });
}

void Graph::keep(const std::shared_ptr<UserObject>& object, uint64_t count) {
    for (const auto& known : references)
        if (known->object() == object.get()) return known->add(count);
    references.push_back(std::make_shared<UserReferences>(object, count));
}

void Graph::take_references_of(const Graph& other) {
    std::vector<std::shared_ptr<UserReferences>> taken;
    for (const auto& known : other.references) taken.push_back(known->clone());
    references = std::move(taken);
}

bool Graph::let_go(const UserObject& object, uint64_t count) {
    for (const auto& known : references)
        if (known->object() == &object) {
            known->release(count);
            std::erase_if(references, [](const auto& r) { return r->empty(); });
            return true;
        }
    return false;
}

GraphNode* Graph::clone_of(uint64_t origin) const {
    auto found = clones_.find(origin);
    if (found != clones_.end()) return found->second;
    for (const auto& node : nodes)
        for (const auto& graph : graphs_in(*node->work))
            if (GraphNode* clone = graph->clone_of(origin)) return clone;
    return nullptr;
}

void Graph::count_capture(int change) {
    for (Graph* graph = this; graph; graph = graph->holder) graph->captures += change;
}

int Graph::depth() const {
    int deepest = 0;
    for (const auto& node : nodes)
        for (const auto& inner : graphs_in(*node->work)) deepest = std::max(deepest, inner->depth());
    return deepest + 1;
}

bool Graph::may_hold(const Graph& inner) const {
    for (const Graph* graph = this; graph; graph = graph->holder)
        if (graph == &inner) return false;
    return may_hold_copy_of(inner);
}

bool Graph::may_hold_copy_of(const Graph& inner) const {
    // Graphs within graphs are walked through by recursion.
    constexpr int depth_max = 256;
    int level = 1;
    for (const Graph* graph = this; graph; graph = graph->holder) ++level;
    return level + inner.depth() <= depth_max;
}

void Graph::take(Graph& inner) {
    inner.held = true;
    inner.holder = this;
}

bool Graph::has_cycle() const {
    if (in_order().size() != nodes.size()) return true;
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
        auto inner = graphs_in(*node->work);
        return std::any_of(inner.begin(), inner.end(), [](const auto& graph) { return graph->has_cycle(); });
    });
}

std::vector<GraphNode*> Graph::in_order() const {
    std::unordered_map<const GraphNode*, size_t> missing;
    std::vector<GraphNode*> order;
    for (const auto& node : nodes) {
        missing[node.get()] = node->dependencies.size();
        if (node->dependencies.empty()) order.push_back(node.get());
    }
    for (size_t next = 0; next < order.size(); ++next)
        for (const Edge& edge : order[next]->dependents)
            if (--missing[edge.node] == 0) order.push_back(edge.node);
    return order;
}

std::shared_ptr<Graph> make_graph(bool listed) {
    auto graph = std::make_shared<Graph>(listed);
    return listed ? driver().registry.add(std::move(graph)) : graph;
}

std::shared_ptr<Graph> clone(const Graph& original, bool listed) {
    auto copy = make_graph(listed);
    std::unordered_map<const GraphNode*, GraphNode*> counterparts;
    for (const auto& node : original.nodes) {
        GraphNode& fresh = copy->add(own_copy(node->work, *copy), {});
        fresh.origin = node->handle();
        fresh.enabled = node->enabled;
        counterparts[node.get()] = &fresh;
        copy->note_clone(fresh);
    }
    // Both lists as they were: exec updates pair edges by their order.
    for (const auto& node : original.nodes) {
        GraphNode& fresh = *counterparts[node.get()];
        for (const Edge& edge : node->dependencies) fresh.dependencies.push_back({counterparts[edge.node], edge.data});
        for (const Edge& edge : node->dependents) fresh.dependents.push_back({counterparts[edge.node], edge.data});
    }
    copy->take_references_of(original);
    return copy;
}

void Graph::note_clone(GraphNode& node) {
    if (node.origin) clones_[node.origin] = &node;
}

Work own_copy(const Work& work, Graph& holder) {
    auto copy_of = [&](const Graph& graph) {
        auto copy = clone(graph, holder.listed);
        holder.take(*copy);
        return copy;
    };
    if (auto* child = std::get_if<ChildWork>(work.get()))
        return std::make_shared<NodeWork>(ChildWork{copy_of(*child->graph), child->ownership});
    if (auto* conditional = std::get_if<ConditionalWork>(work.get())) {
        ConditionalWork own{conditional->condition, conditional->type, {}, {}};
        for (const auto& body : conditional->bodies) own.bodies.push_back(copy_of(*body));
        return std::make_shared<NodeWork>(std::move(own));
    }
    return work;
}

void unlist(Graph& graph) {
    graph.holder = nullptr;
    if (!graph.listed) return;
    for (const auto& node : graph.nodes) {
        for (const auto& inner : graphs_in(*node->work)) unlist(*inner);
        driver().registry.remove(node->handle());
        node->graph = nullptr;
    }
    graph.conditions.clear();
    driver().registry.remove(graph.handle());
    graph.references.clear();
}

CUresult read_edges(const Graph& graph, const CUgraphNode* nodes, const EdgeData* data, size_t count, Edges& edges) {
    if (count && !nodes) return CUDA_ERROR_INVALID_VALUE;
    // More edges than nodes cannot be right: the count may be garbage, and what it counts not there.
    if (count > graph.nodes.size()) return CUDA_ERROR_INVALID_VALUE;
    std::unordered_set<const GraphNode*> seen;
    for (size_t i = 0; i < count; ++i) {
        auto node = find<GraphNode>(nodes[i]);
        if (!node || node->graph != &graph || !seen.insert(node.get()).second) return CUDA_ERROR_INVALID_VALUE;
        edges.push_back({node.get(), data ? data[i] : EdgeData{}});
    }
    return CUDA_SUCCESS;
}

}  // namespace tnr::emulated
