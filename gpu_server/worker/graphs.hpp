// The client's numbers for graphs, their nodes, and what was instantiated from them. A graph owns its nodes, and a node
// may hold a graph: what is owned is forgotten with its owner, since the driver frees it then. What the driver made by
// itself gets a number of ours when the client first asks for it.
#pragma once

#include <vector>

#include "driver_table.hpp"
#include "gpu_server/worker/graph_memory.hpp"
#include "gpu_server/worker/numbered_handles.hpp"

namespace tnr::worker {

// What a call about graphs has named, by number: what it makes or finds belongs there.
struct NamedGraph {
    uint64_t graph = 0;  // the first graph that was named, else the one of the first node
    uint64_t node = 0;   // the first node that was named
    uint64_t exec = 0;
    bool by_itself = false, of_nodes = false;
};

class GraphBook {
public:
    explicit GraphBook(const std::vector<Device>& devices) : devices_(devices) {}

    NumberedHandles<CUgraphExec> execs;
    // Of these. They are only looked for once a graph has been told to allocate.
    NumberedHandles<AllocatingGraph> allocating;
    bool any_allocates = false;

    // Null when the number is unknown.
    CUgraph find_graph(uint64_t number);
    CUgraphNode find_node(uint64_t number);
    void name(NamedGraph& named, uint64_t graph, uint64_t node);

    // Whether enter() would, or else what the call returns: asked before the driver makes what would have no number.
    CUresult room_for(uint64_t number, CUgraph) const { return graphs_.room_for(number); }
    CUresult room_for(uint64_t number, CUgraphNode) const { return nodes_.room_for(number); }
    CUresult room_for(uint64_t number, CUgraphExec) const { return execs.room_for(number); }
    // False if the number is taken, or there are too many.
    bool enter(uint64_t number, CUgraph graph, const NamedGraph& where);
    bool enter(uint64_t number, CUgraphNode node, const NamedGraph& where);
    bool enter(uint64_t number, CUgraphExec exec, const NamedGraph& where);
    // The number that is known, or a new one; 0 if there are too many.
    uint64_t number_of(CUgraph graph, const NamedGraph& where);
    uint64_t number_of(CUgraphNode node, const NamedGraph& where);
    uint64_t known_number(CUgraph graph) const;  // 0: none yet

    // A call that nobody waited for has failed, so the graph, or the instance, is not what the client takes it for: from now
    // on every call on it fails as that one did, but for the one that ends it. False if none was to be changed.
    bool spoil(const NamedGraph& changed, CUresult why);
    CUresult spoilt(uint64_t number) const;  // why; CUDA_SUCCESS: it is not

    void moved_into(uint64_t graph, uint64_t node);    // the graph belongs to the node from now on
    std::vector<CUgraph> graphs_in(CUgraphNode node);  // as far as they have numbers

    // With all that they own.
    void forget_graph(uint64_t number);
    void forget_node(uint64_t number);
    void forget_graphs_in(CUgraphNode node);
    void forget_exec(uint64_t number);

private:
    struct Graph {
        CUgraph handle = nullptr;
        std::vector<uint64_t> nodes;
    };
    struct Node {
        CUgraphNode handle = nullptr;
        uint64_t graph = 0;
        std::vector<uint64_t> graphs;
    };
    void node_gone(uint64_t number);

    const std::vector<Device>& devices_;
    NumberedHandles<Graph> graphs_;
    NumberedHandles<Node> nodes_;
    std::unordered_map<CUgraph, uint64_t> graph_numbers_;
    std::unordered_map<CUgraphNode, uint64_t> node_numbers_;
    std::unordered_map<uint64_t, CUresult> spoilt_;  // of graphs and instances, by number
    uint64_t last_number_ = 0;                       // of ours
};

}  // namespace tnr::worker
