// See graphs.hpp.
#include "gpu_server/worker/graphs.hpp"

#include "gpu_client/protocol/record.hpp"

namespace tnr::worker {

CUgraph GraphBook::find_graph(uint64_t number) {
    auto* found = graphs_.find(number);
    return found ? found->handle : nullptr;
}

CUgraphNode GraphBook::find_node(uint64_t number) {
    auto* found = nodes_.find(number);
    return found ? found->handle : nullptr;
}

void GraphBook::name(NamedGraph& named, uint64_t graph, uint64_t node) {
    if (graph != 0 && !named.by_itself) {
        named.graph = graph;
        named.by_itself = true;
    }
    auto* found = node != 0 && named.node == 0 ? nodes_.find(node) : nullptr;
    if (!found) return;
    named.node = node;
    if (!named.by_itself) named.graph = found->graph;
}

bool GraphBook::enter(uint64_t number, CUgraph graph, const NamedGraph&) {
    if (!graphs_.add(number, {graph, {}})) return false;
    graph_numbers_[graph] = number;
    return true;
}

bool GraphBook::enter(uint64_t number, CUgraphNode node, const NamedGraph& where) {
    auto* owner = graphs_.find(where.graph);
    if (!owner || !nodes_.add(number, {node, where.graph, {}})) return false;
    owner->nodes.push_back(number);
    node_numbers_[node] = number;
    return true;
}

bool GraphBook::enter(uint64_t number, CUgraphExec exec, const NamedGraph& where) {
    if (!execs.add(number, exec)) return false;
    auto* graph = any_allocates ? graphs_.find(where.graph) : nullptr;
    if (!graph) return true;
    auto bytes = memory_needed_by(graph->handle, devices_);
    return bytes.empty() || allocating.add(number, {std::move(bytes)});
}

uint64_t GraphBook::known_number(CUgraph graph) const {
    auto known = graph_numbers_.find(graph);
    return known == graph_numbers_.end() ? 0 : known->second;
}

uint64_t GraphBook::number_of(CUgraph graph, const NamedGraph& where) {
    if (!graph) return 0;
    if (auto known = known_number(graph)) return known;
    uint64_t number = wire::first_number_of_worker + ++last_number_;
    if (!enter(number, graph, where)) return 0;
    if (auto* holder = nodes_.find(where.node)) holder->graphs.push_back(number);
    return number;
}

uint64_t GraphBook::number_of(CUgraphNode node, const NamedGraph& where) {
    if (!node) return 0;
    if (auto known = node_numbers_.find(node); known != node_numbers_.end()) return known->second;
    uint64_t number = wire::first_number_of_worker + ++last_number_;
    return enter(number, node, where) ? number : 0;
}

bool GraphBook::spoil(const NamedGraph& changed, CUresult why) {
    if (changed.exec != 0 && !changed.of_nodes) return false;  // a launch, which changes nothing
    const uint64_t number = changed.exec != 0 ? changed.exec : changed.graph;
    if (!execs.find(number) && !graphs_.find(number)) return false;
    spoilt_.emplace(number, why);
    return true;
}

CUresult GraphBook::spoilt(uint64_t number) const {
    auto found = spoilt_.find(number);
    return found == spoilt_.end() ? CUDA_SUCCESS : found->second;
}

void GraphBook::moved_into(uint64_t graph, uint64_t node) {
    if (auto* holder = nodes_.find(node)) holder->graphs.push_back(graph);
}

std::vector<CUgraph> GraphBook::graphs_in(CUgraphNode node) {
    auto known = node_numbers_.find(node);
    auto* holder = known == node_numbers_.end() ? nullptr : nodes_.find(known->second);
    std::vector<CUgraph> found;
    if (!holder) return found;
    for (auto number : holder->graphs)
        if (auto* graph = graphs_.find(number)) found.push_back(graph->handle);
    return found;
}

void GraphBook::forget_graph(uint64_t number) {
    auto* found = graphs_.find(number);
    if (!found) return;
    auto graph = std::move(*found);
    graphs_.remove(number);
    spoilt_.erase(number);
    graph_numbers_.erase(graph.handle);
    for (auto node : graph.nodes) node_gone(node);
}

void GraphBook::forget_node(uint64_t number) {
    auto* found = nodes_.find(number);
    if (!found) return;
    if (auto* owner = graphs_.find(found->graph)) std::erase(owner->nodes, number);
    node_gone(number);
}

void GraphBook::forget_graphs_in(CUgraphNode node) {
    auto known = node_numbers_.find(node);
    auto* holder = known == node_numbers_.end() ? nullptr : nodes_.find(known->second);
    if (!holder) return;
    for (auto graph : std::exchange(holder->graphs, {})) forget_graph(graph);
}

void GraphBook::forget_exec(uint64_t number) {
    execs.remove(number);
    spoilt_.erase(number);
    allocating.remove(number);
}

void GraphBook::node_gone(uint64_t number) {
    auto* found = nodes_.find(number);
    if (!found) return;
    auto node = std::move(*found);
    nodes_.remove(number);
    node_numbers_.erase(node.handle);
    for (auto graph : node.graphs) forget_graph(graph);
}

}  // namespace tnr::worker
