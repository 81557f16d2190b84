// Graphs: nodes of work and the order among them. A program builds a graph node by node or captures it from streams
// (capture.hpp), and runs instances of it (graph_exec.hpp).
//
// graph_mutex() guards the graphs, nodes, instances and captures of the process, all members in these headers. CUDA
// leaves it to programs to call from one thread at a time; a program that does not must not harm us. Nothing is waited
// for under it, and no function of the program is called.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "gpu_server/emulated_gpu/driver/graph_memory.hpp"
#include "gpu_server/emulated_gpu/driver/graph_work.hpp"
#include "gpu_server/emulated_gpu/driver/user_object.hpp"

namespace tnr::emulated {

class GraphExec;
class GraphNode;

Mutex& graph_mutex();

using EdgeData = CUgraphEdgeData;
bool is_plain(const EdgeData& data);

// What a node waits for, or who waits for it.
struct Edge {
    GraphNode* node = nullptr;
    EdgeData data{};

    bool operator==(const Edge& other) const;
};
using Edges = std::vector<Edge>;
// Those of `more` that are not there yet.
void add_missing(Edges& edges, const Edges& more);

class GraphNode : public Object {
public:
    static constexpr Kind kind_of = Kind::graph_node;
    GraphNode(Graph& owner, Work does) : Object(kind_of), graph(&owner), work(std::move(does)) {}

    Graph* graph;  // null once it has been destroyed
    Work work;
    Edges dependencies, dependents;  // in the order of their making
    uint64_t origin = 0;             // the handle of the node that it was cloned from
    bool enabled = true;             // in instances only
    Work shown;                      // what the last query gave pointers into

    template <class T>
    const T* work_as() const {
        return std::get_if<T>(work.get());
    }
};

class Graph : public Object, public std::enable_shared_from_this<Graph> {
public:
    static constexpr Kind kind_of = Kind::graph;
    // `listed`: it and its nodes have handles. Instances keep graphs that have none.
    explicit Graph(bool is_listed) : Object(kind_of), listed(is_listed) {}

    // A node of this graph after `dependencies`, which are other nodes of it.
    GraphNode& add(Work work, const Edges& dependencies);
    void connect(GraphNode& from, GraphNode& to, const EdgeData& data);
    // False if there is no such edge.
    bool disconnect(GraphNode& from, GraphNode& to, const EdgeData* data);  // null: whatever it is
    void remove(GraphNode& node);
    // The node that was cloned from the one of this handle, in this graph or one that its nodes hold; null if none was.
    GraphNode* clone_of(uint64_t origin) const;
    void note_clone(GraphNode& node);  // from now on clone_of() knows it
    // Here or in a graph that it holds.
    bool has_cycle() const;
    // The nodes, each behind all that it depends on; those of a cycle, and what comes behind one, are left out.
    std::vector<GraphNode*> in_order() const;

    // Graphs with nodes that allocate or free memory, that run graphs on conditions or that kernels change are not copied,
    // and have one instance at a time.
    bool is_unique() const { return has_memory || has_updatable || conditional_nodes; }
    // Is a stream being captured into it, or into a graph that it holds?
    bool is_captured() const { return captures != 0; }
    void count_capture(int change);

    // May a node of it hold `inner`? Not if the one were in the other, nor if they were nested too deep.
    bool may_hold(const Graph& inner) const;
    bool may_hold_copy_of(const Graph& inner) const;  // its own, too
    // The graph becomes part of a node of this one.
    void take(Graph& inner);

    // References to user objects; the caller has retained what is kept.
    void keep(const std::shared_ptr<UserObject>& object, uint64_t count);
    bool let_go(const UserObject& object, uint64_t count);  // false: it keeps none
    // Keeps what the other does, and no longer what it did. Launches that are under way keep that.
    void take_references_of(const Graph& other);

    const bool listed;
    std::vector<std::shared_ptr<GraphNode>> nodes;  // in the order of their making
    bool held = false;                              // part of a node: it goes with that
    bool moved = false;                             // made by the program and then given to a node
    bool has_memory = false;                        // for good, as such nodes stay
    bool has_updatable = false;                     // a node that kernels change; likewise
    Graph* holder = nullptr;                        // whose node holds it, as long as that has its handle
    int conditional_nodes = 0;
    int captures = 0;  // that are going on in it and in what it holds
    std::vector<std::shared_ptr<GraphCondition>> conditions;
    std::vector<std::shared_ptr<UserReferences>> references;
    std::weak_ptr<GraphExec> instance;  // the newest

private:
    int depth() const;  // of graphs within graphs; 1: holds none

    std::unordered_map<uint64_t, GraphNode*> clones_;  // by origin
};

std::shared_ptr<Graph> make_graph(bool listed);
// The same nodes and edges, children too.
std::shared_ptr<Graph> clone(const Graph& original, bool listed);
// The graphs that a node with this work holds.
std::vector<std::shared_ptr<Graph>> graphs_in(const NodeWork& work);
// Takes the handles of the graph and of its nodes away, of those that its nodes hold too.
void unlist(Graph& graph);
// Work that holds graphs gets its own copies of them; other work is shared.
Work own_copy(const Work& work, Graph& holder);

// Edges out of a program's arrays; `data` may be null. Fails unless all are nodes of the graph, and each stands there once.
CUresult read_edges(const Graph& graph, const CUgraphNode* nodes, const EdgeData* data, size_t count, Edges& edges);
// May an edge between nodes of these types have such data?
bool is_known(const EdgeData& data, CUgraphNodeType from, CUgraphNodeType to);

// For functions on graphs: under the lock, which they must not take again.
template <class Call>
CUresult with_graphs(Call&& call) noexcept {
    return initialized([&]() -> CUresult {
        LockGuard lock(graph_mutex());
        return call();
    });
}

template <class Call>
CUresult on_graph(CUgraph handle, Call&& call) noexcept {
    return with_graphs([&]() -> CUresult {
        auto graph = find<Graph>(handle);
        return graph ? call(*graph) : CUDA_ERROR_INVALID_VALUE;
    });
}

template <class Call>
CUresult on_node(CUgraphNode handle, Call&& call) noexcept {
    return with_graphs([&]() -> CUresult {
        auto node = find<GraphNode>(handle);
        return node && node->graph ? call(*node) : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // namespace tnr::emulated
