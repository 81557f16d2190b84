// See graph_objects.hpp.
#include "gpu_client/cuda/graph_objects.hpp"

#include <atomic>
#include <map>
#include <unordered_map>

#include "api_client/base/mutex.hpp"
#include "gpu_client/protocol/record.hpp"

namespace tnr::cuda {

Graphs& graphs() {
    static auto* all = new Graphs;
    return *all;
}
GraphNodes& graph_nodes() {
    static auto* all = new GraphNodes;
    return *all;
}
GraphExecs& graph_execs() {
    static auto* all = new GraphExecs;
    return *all;
}

UserObjects& user_objects() {
    static auto* all = new UserObjects;
    return *all;
}

namespace {

// Who owns what, and what the numbers in answers stand for. All by handle.
struct Ownership {
    // By number, and for the worker's own by the session that they are of.
    using Numbered = std::map<std::pair<const ClientSession*, uint64_t>, uint64_t>;
    Mutex mutex;
    std::unordered_map<uint64_t, std::vector<uint64_t>> nodes_of_graph TNR_GUARDED_BY(mutex);
    std::unordered_map<uint64_t, std::vector<uint64_t>> graphs_of_node TNR_GUARDED_BY(mutex);
    Numbered graphs TNR_GUARDED_BY(mutex), nodes TNR_GUARDED_BY(mutex);
    std::unordered_map<uint64_t, uint64_t> named_execs TNR_GUARDED_BY(mutex);  // our handles, by the driver's
    std::atomic<size_t> named_exec_count{0};

    using Unneeded = std::vector<std::shared_ptr<const GraphNeeds>>;
    void node_gone(uint64_t handle, Unneeded& unneeded) TNR_REQUIRES(mutex);
    void graph_gone(uint64_t handle, Unneeded& unneeded) TNR_REQUIRES(mutex);
};
Ownership& ownership() {
    static auto* all = new Ownership;
    return *all;
}

// Extracts what is owned by `owner`.
std::vector<uint64_t> take(std::unordered_map<uint64_t, std::vector<uint64_t>>& owned, uint64_t owner) {
    auto node = owned.extract(owner);
    return node.empty() ? std::vector<uint64_t>() : std::move(node.mapped());
}

void Ownership::graph_gone(uint64_t handle, Unneeded& unneeded) {
    for (auto node : take(nodes_of_graph, handle)) node_gone(node, unneeded);
    auto* graph = tnr::cuda::graphs().find(handle);
    if (!graph) return;
    graphs.erase({graph->session, graph->number});
    unneeded.push_back(std::move(graph->needs));
    tnr::cuda::graphs().destroy(handle);
}

void Ownership::node_gone(uint64_t handle, Unneeded& unneeded) {
    for (auto graph : take(graphs_of_node, handle)) graph_gone(graph, unneeded);
    auto* node = graph_nodes().find(handle);
    if (!node) return;
    nodes.erase({node->session, node->number});
    graph_nodes().destroy(handle);
}

// Never used again: a call whose number the client has given up may have succeeded all the same.
uint64_t next_graph_number() {
    static std::atomic<uint64_t> last{0};
    return ++last;
}

template <class Registry>
uint64_t create(Registry& registry, const ClientSession* session, uint64_t number) {
    return registry.create([=](auto& object, uint64_t, uint64_t handle) {
        object = {};
        object.session = session;
        object.number = number;
        object.handle = handle;
    });
}

template <class Registry>
uint64_t create_minted(Registry& registry, Ownership::Numbered& numbered) TNR_REQUIRES(ownership().mutex) {
    uint64_t number = next_graph_number();
    return numbered[{nullptr, number}] = create(registry, nullptr, number);
}

}  // namespace

void NamedGraph::name(CUgraph handle) {
    if (by_itself) return;
    graph = value_of(handle);
    by_itself = true;
}

void NamedGraph::name(CUgraphNode handle) {
    auto* named = find_graph_node(handle);
    if (!named || node != 0) return;
    node = value_of(handle);
    if (!by_itself) graph = named->graph;
}

void mint(CUgraph& handle) {
    LockGuard lock(ownership().mutex);
    handle = handle_of<CUgraph>(create_minted(graphs(), ownership().graphs));
}
void mint(CUgraphNode& handle) {
    LockGuard lock(ownership().mutex);
    handle = handle_of<CUgraphNode>(create_minted(graph_nodes(), ownership().nodes));
}
void mint(CUgraphExec& handle) {
    handle = handle_of<CUgraphExec>(create(graph_execs(), nullptr, next_graph_number()));
}

GraphExec* find_graph_exec(CUgraphExec handle) {
    if (auto* exec = graph_execs().find(value_of(handle)); exec || ownership().named_exec_count == 0) return exec;
    LockGuard lock(ownership().mutex);
    auto named = ownership().named_execs.find(value_of(handle));
    return named != ownership().named_execs.end() ? graph_execs().find(named->second) : nullptr;
}

bool name_by_driver(CUgraphExec& handle, uint64_t name) {
    LockGuard lock(ownership().mutex);
    if (!ownership().named_execs.emplace(name, value_of(handle)).second) return false;
    ownership().named_exec_count = ownership().named_execs.size();
    handle = handle_of<CUgraphExec>(name);
    return true;
}

// The graph that this one is inside of, however deep, or itself: what launches need is kept there.
static Graph* outermost(uint64_t handle) {
    auto* graph = graphs().find(handle);
    while (graph && graph->holder != 0) {
        auto* holder = graph_nodes().find(graph->holder);
        graph = holder ? graphs().find(holder->graph) : nullptr;
    }
    return graph;
}

// What it needs, to be changed: what is shared stays as it is.
static GraphNeeds& own_needs(Graph& graph) {
    if (std::exchange(graph.needs_are_shared, false)) graph.needs = std::make_shared<GraphNeeds>(*graph.needs);
    return *graph.needs;
}

// A graph inside another may need less than that.
static std::shared_ptr<GraphNeeds> share_needs(uint64_t handle) {
    auto* graph = outermost(handle);
    if (!graph || !graph->needs) return nullptr;
    if (graph->handle == handle) {
        graph->needs_are_shared = true;
        return graph->needs;
    }
    auto needs = std::make_shared<GraphNeeds>(*graph->needs);
    needs->may_be_less = true;
    return needs;
}

// A clone, or an instance: it needs what the graph needs.
void made(CUgraph handle, const NamedGraph& from) {
    LockGuard lock(ownership().mutex);
    auto* graph = find_graph(handle);
    if (!graph) return;
    graph->needs = share_needs(from.graph);
    graph->needs_are_shared = true;
}
void made(CUgraphExec handle, const NamedGraph& from) {
    auto* exec = find_graph_exec(handle);
    LockGuard lock(ownership().mutex);
    if (!exec) return;
    exec->needs = share_needs(from.graph);
    exec->has_needs = exec->needs != nullptr;
    exec->graph = from.graph;
}
void made(CUgraphNode handle, const NamedGraph& where) {
    LockGuard lock(ownership().mutex);
    auto* node = find_graph_node(handle);
    if (!node) return;
    node->graph = where.graph;
    ownership().nodes_of_graph[where.graph].push_back(value_of(handle));
}

void moved_into(CUgraph handle, CUgraphNode node) {
    LockGuard lock(ownership().mutex);
    auto* graph = find_graph(handle);
    if (!graph) return;
    graph->holder = value_of(node);
    ownership().graphs_of_node[graph->holder].push_back(value_of(handle));
}

bool holds(CUgraph outer, CUgraph inner) {
    LockGuard lock(ownership().mutex);
    auto* graph = find_graph(inner);
    while (graph && graph->holder != 0 && inner != outer) {
        auto* holder = graph_nodes().find(graph->holder);
        inner = handle_of<CUgraph>(holder ? holder->graph : 0);
        graph = find_graph(inner);
    }
    return inner == outer;
}

bool is_in_body(CUgraph handle) {
    LockGuard lock(ownership().mutex);
    auto* graph = find_graph(handle);
    while (graph && graph->holder != 0) {
        auto* holder = graph_nodes().find(graph->holder);
        if (!holder || holder->bodies) return holder != nullptr;
        graph = graphs().find(holder->graph);
    }
    return false;
}

void forget(CUgraph handle) {
    std::vector<std::shared_ptr<const GraphNeeds>> unneeded;  // may free memory: without the lock
    LockGuard lock(ownership().mutex);
    ownership().graph_gone(value_of(handle), unneeded);
}
void forget(CUgraphNode handle) {
    std::vector<std::shared_ptr<const GraphNeeds>> unneeded;
    LockGuard lock(ownership().mutex);
    if (auto* node = find_graph_node(handle)) std::erase(ownership().nodes_of_graph[node->graph], value_of(handle));
    ownership().node_gone(value_of(handle), unneeded);
}

void forget_graphs_in(CUgraphNode node) {
    std::vector<std::shared_ptr<const GraphNeeds>> unneeded;
    LockGuard lock(ownership().mutex);
    for (auto graph : take(ownership().graphs_of_node, value_of(node))) ownership().graph_gone(graph, unneeded);
}

void add_needs(CUgraph handle, const GraphNeeds& more) {
    if (more.empty()) return;
    LockGuard lock(ownership().mutex);
    auto* graph = outermost(value_of(handle));
    if (!graph) return;
    if (!graph->needs) graph->needs = std::make_shared<GraphNeeds>();
    own_needs(*graph).add(more);
}

void needs_may_be_less(CUgraph handle) {
    LockGuard lock(ownership().mutex);
    auto* graph = outermost(value_of(handle));
    if (graph && graph->needs) own_needs(*graph).may_be_less = true;
}

std::shared_ptr<const GraphNeeds> needs_of(CUgraph handle) {
    LockGuard lock(ownership().mutex);
    return share_needs(value_of(handle));
}

HostCopies::Copy same_copy_in(CUgraph handle, const HostCopy& like) {
    LockGuard lock(ownership().mutex);
    auto* graph = outermost(value_of(handle));
    return graph && graph->needs ? graph->needs->copies.find_same(like) : nullptr;
}

std::shared_ptr<const GraphNeeds> needs_of(CUgraphExec handle) {
    auto* exec = find_graph_exec(handle);
    LockGuard lock(ownership().mutex);
    return exec ? exec->needs : nullptr;
}

void set_needs(CUgraph handle, std::shared_ptr<GraphNeeds> needs) {
    LockGuard lock(ownership().mutex);
    auto* graph = outermost(value_of(handle));
    if (!graph) return;
    graph->needs.swap(needs);
    graph->needs_are_shared = graph->needs != nullptr;
}

void set_needs(CUgraphExec handle, std::shared_ptr<const GraphNeeds> needs) {
    auto* exec = find_graph_exec(handle);
    if (!exec) return;
    LockGuard lock(ownership().mutex);
    exec->needs.swap(needs);
    exec->has_needs = exec->needs != nullptr;
}
void forget(CUgraphExec handle) {
    std::shared_ptr<const GraphNeeds> needs;  // may free memory: without the lock
    {
        LockGuard lock(ownership().mutex);
        auto named = ownership().named_execs.extract(value_of(handle));
        ownership().named_exec_count = ownership().named_execs.size();
        uint64_t ours = named.empty() ? value_of(handle) : named.mapped();
        if (auto* exec = graph_execs().find(ours)) needs = std::move(exec->needs);
        graph_execs().destroy(ours);
    }
}

void find_numbered(const ClientSession& session, uint64_t number, const NamedGraph& where, CUgraph& handle) {
    LockGuard lock(ownership().mutex);
    bool own = number < wire::first_number_of_worker;
    auto& known = ownership().graphs[{own ? nullptr : &session, number}];
    if (known == 0 && !own) {
        known = create(graphs(), &session, number);
        graphs().find(known)->holder = where.node;
        if (where.node != 0) ownership().graphs_of_node[where.node].push_back(known);
    }
    handle = handle_of<CUgraph>(known);
}

void find_numbered(const ClientSession& session, uint64_t number, const NamedGraph& where, CUgraphNode& handle) {
    LockGuard lock(ownership().mutex);
    bool own = number < wire::first_number_of_worker;
    auto& known = ownership().nodes[{own ? nullptr : &session, number}];
    if (known == 0 && !own) {
        known = create(graph_nodes(), &session, number);
        graph_nodes().find(known)->graph = where.graph;
        ownership().nodes_of_graph[where.graph].push_back(known);
    }
    handle = handle_of<CUgraphNode>(known);
}

void find_numbered(const ClientSession&, uint64_t number, const NamedGraph&, CUevent& handle) {
    auto* event = events().at(number - 1);
    handle = handle_of<CUevent>(event ? event->handle : 0);
}

}  // namespace tnr::cuda
