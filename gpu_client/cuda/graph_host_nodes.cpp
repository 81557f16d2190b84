// Functions of the program as nodes of graphs.
#include <algorithm>

#include "gpu_client/cuda/graph_functions.hpp"
#include "gpu_client/cuda/graph_nodes.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/host_functions.hpp"

namespace tnr::cuda {

namespace {

using Ticket = std::shared_ptr<const uint64_t>;

CUresult prepare(const CUDA_HOST_NODE_PARAMS* given, Ticket& ticket) {
    if (!given || !given->fn) return CUDA_ERROR_INVALID_VALUE;
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    auto run = [function = given->fn, data = given->userData] { function(data); };
    ticket = make_graph_function(*context->session.load(), run, *given);
    return CUDA_SUCCESS;
}

void put_function(TableCall& call, const Ticket& ticket) {
    call.put(*ticket);
    call.put(decltype(wire::AddHostNode<>::seen)());
}

CUresult add_host(const NodePlace& place, const CUDA_HOST_NODE_PARAMS* given) {
    if (!place.out || (place.count != 0 && !place.dependencies)) return CUDA_ERROR_INVALID_VALUE;
    Ticket ticket;
    if (auto result = prepare(given, ticket); result != CUDA_SUCCESS) return result;
    TableCall call(wire::AddHostNode<>::op, wire::AddHostNode<>::way);
    Minted<CUgraphNode> made;
    put_place(call, made, place);
    put_function(call, ticket);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    *place.out = made.keep(call);
    add_needs(place.graph, {{}, {{ticket, value_of(*place.out)}}});
    return CUDA_SUCCESS;
}

CUresult ask_ticket(CUgraphNode handle, uint64_t& ticket) {
    TableCall call(wire::GetHostNode<>::op, wire::GetHostNode<>::way);
    call.handle(handle);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    wire::HostWork work;
    auto result = call.take(work);
    ticket = work.ticket;
    return result;
}

// The needs with another function for the node.
std::shared_ptr<GraphNeeds> with_function(const std::shared_ptr<const GraphNeeds>& needs, CUgraphNode node,
                                          uint64_t old_ticket, const Ticket& ticket) {
    auto changed = needs ? std::make_shared<GraphNeeds>(*needs) : std::make_shared<GraphNeeds>();
    std::erase_if(changed->functions,
                  [&](auto& old) { return old.node == value_of(node) || *old.ticket == old_ticket; });
    changed->functions.push_back({ticket, value_of(node)});
    return changed;
}

CUresult set_host(CUgraphNode handle, const CUDA_HOST_NODE_PARAMS* given) {
    auto* node = find_graph_node(handle);
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    auto graph = handle_of<CUgraph>(node->graph);
    auto needs = needs_of(graph);
    Ticket ticket;
    if (auto result = prepare(given, ticket); result != CUDA_SUCCESS) return result;
    uint64_t old_ticket = 0;
    if (auto result = ask_ticket(handle, old_ticket); result != CUDA_SUCCESS) return result;
    TableCall call(wire::SetHostNode<>::op, wire::SetHostNode<>::way);
    call.handle(handle);
    put_function(call, ticket);
    if (auto result = call.send(); result != CUDA_SUCCESS) return result;
    set_needs(graph, with_function(needs, handle, old_ticket, ticket));
    return CUDA_SUCCESS;
}

// Of the function that the node has in an instance: the graph's own, unless it was set there before.
uint64_t ticket_in(const std::shared_ptr<const GraphNeeds>& needs, CUgraphNode node, uint64_t of_graph) {
    if (needs)
        for (auto& function : needs->functions)
            if (function.node == value_of(node)) return *function.ticket;
    return of_graph;
}

// If it sees something else than the graph's function.
CUresult tell_worker(CUgraphExec exec, uint64_t ticket) {
    auto memory = memory_of_function(ticket);
    if (!memory || !memory->of_instance) return CUDA_SUCCESS;
    decltype(wire::FunctionSees<>::seen) seen;
    for (auto& copy : memory->seen) seen.push_back({*copy->mirror, mirrored_bytes(*copy)});
    TableCall call(wire::FunctionSees<>::op, wire::FunctionSees<>::way);
    call.handle(exec);
    call.put(ticket);
    call.put(seen);
    return call.send();
}

// The function takes the place of the one with the old ticket.
CUresult place_function(CUgraphExec exec, CUgraphNode handle, uint64_t old_ticket, const Ticket& ticket) {
    TableCall call(wire::SetExecHostNode<>::op, wire::SetExecHostNode<>::way);
    call.handle(exec);
    call.handle(handle);
    put_function(call, ticket);
    auto result = call.send();
    if (result == CUDA_SUCCESS) set_needs(exec, with_function(needs_of(exec), handle, old_ticket, ticket));
    return result;
}

CUresult set_host(CUgraphExec exec, CUgraphNode handle, const CUDA_HOST_NODE_PARAMS* given) {
    if (!find_graph_exec(exec)) return CUDA_ERROR_INVALID_VALUE;
    Ticket ticket;
    if (auto result = prepare(given, ticket); result != CUDA_SUCCESS) return result;
    uint64_t old_ticket = 0;
    if (auto result = ask_ticket(handle, old_ticket); result != CUDA_SUCCESS) return result;
    const auto needs = needs_of(exec);  // keeps the ticket
    old_ticket = ticket_in(needs, handle, old_ticket);
    if (auto result = place_function(exec, handle, old_ticket, ticket); result != CUDA_SUCCESS) return result;
    take_place_of(old_ticket, *ticket);
    return tell_worker(exec, *ticket);
}

// The graph's node with the function; null: it is not the graph's own.
CUresult find_node(CUgraph graph, const GraphFunction& function, CUgraphNode& found) {
    found = handle_of<CUgraphNode>(function.node);
    auto* known = find_graph_node(found);
    if (known && known->graph == value_of(graph)) return CUDA_SUCCESS;
    found = nullptr;
    std::vector<CUgraphNode> nodes;
    if (auto result = list_nodes(graph, nodes); result != CUDA_SUCCESS) return result;
    for (auto node : nodes) {
        auto type = CU_GRAPH_NODE_TYPE_EMPTY;
        uint64_t ticket = 0;
        if (auto result = cuGraphNodeGetType(node, &type); result != CUDA_SUCCESS) return result;
        if (type == CU_GRAPH_NODE_TYPE_HOST && ask_ticket(node, ticket) == CUDA_SUCCESS && ticket == *function.ticket)
            found = node;
    }
    return CUDA_SUCCESS;
}

// How the function has to do with the copy: null, if it has not.
const std::vector<std::shared_ptr<const HostCopy>>* part_with(const FunctionMemory& memory, const HostCopy& copy) {
    auto& part = copy.to_device ? memory.brings : memory.seen;
    bool has = std::any_of(part.begin(), part.end(), [&](auto& one) { return one->mirror == copy.mirror; });
    return has ? &part : nullptr;
}

CUresult show_host(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    uint64_t ticket = 0;
    auto result = ask_ticket(handle, ticket);
    return result == CUDA_SUCCESS ? find_graph_function(ticket, *out) : result;
}

}  // namespace

CUresult find_functions_of(const GraphNeeds& needs, CUgraph graph, const HostCopy& copy,
                           std::vector<ToldFunction>& found) {
    for (auto& function : needs.functions) {
        auto memory = memory_of_function(*function.ticket);
        if (!memory || !part_with(*memory, copy)) continue;
        ToldFunction told{*function.ticket};
        if (auto result = find_node(graph, function, told.node); result != CUDA_SUCCESS) return result;
        if (!told.node)
            return static_cast<CUresult>(
                unsupported("an instance's new host copy beside a function of a graph inside"));
        found.push_back(told);
    }
    return CUDA_SUCCESS;
}

CUresult tell_functions(CUgraphExec exec, const std::vector<ToldFunction>& functions, const HostCopies::Copy& before,
                        const HostCopies::Copy& now) {
    for (auto& function : functions) {
        auto old = memory_of_function(function.ticket);
        auto memory = old ? *old : FunctionMemory();
        memory.of_instance |= !now->to_device && now->mirror != before->mirror;
        for (auto& one : now->to_device ? memory.brings : memory.seen)
            if (one->mirror == before->mirror) one = now;
        auto ticket = make_twin(function.ticket, std::move(memory));
        auto result = ticket ? place_function(exec, function.node, function.ticket, ticket) : CUDA_ERROR_UNKNOWN;
        if (result == CUDA_SUCCESS) result = tell_worker(exec, *ticket);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                    const CUDA_HOST_NODE_PARAMS* given) {
    return guarded("cuGraphAddHostNode", [&] { return add_host({out, graph, dependencies, count}, given); });
}
CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
    return guarded("cuGraphHostNodeGetParams", [&] { return show_host(node, out); });
}
CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
    return guarded("cuGraphHostNodeSetParams", [&] { return set_host(node, given); });
}
CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
    return guarded("cuGraphExecHostNodeSetParams", [&] { return set_host(exec, node, given); });
}

}  // extern "C"
