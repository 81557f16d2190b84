// Graphs, their nodes, and what was instantiated from them, as the program names them.
//
// A graph owns its nodes, and a node may hold a graph (a child): when an owner goes, the handles of all that it owns
// are forgotten. Nodes that the driver makes by itself, in a capture or a clone, are numbered by the worker when the
// program first asks for them; find_numbered() gives such a number a handle.
#pragma once

#include <map>

#include "gpu_client/cuda/graph_needs.hpp"
#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

struct Graph {
    const ClientSession* session = nullptr;  // that has numbered it; null: it was minted here
    uint64_t number = 0;
    uint64_t handle = 0;
    uint64_t holder = 0;  // handle of the node that it is the child of; 0: the program's own
    std::shared_ptr<GraphNeeds> needs;
    bool needs_are_shared = false;  // with an instance or a clone, or whoever has asked: not to be changed any more
};

// What a program is shown of a kernel's parameters stays there until it asks again or the node is gone.
struct ShownKernel {
    std::vector<std::byte> bytes;
    std::vector<void*> pointers;  // kernelParams, or `extra` with the size behind it
    size_t size = 0;
};

struct GraphNode {
    const ClientSession* session = nullptr;
    uint64_t number = 0;
    uint64_t handle = 0;
    uint64_t graph = 0;     // handle
    uint64_t function = 0;  // number of the kernel that the program gave it; 0: not known, or more was said of it
    // As the program gave or was shown them; null: not yet.
    std::shared_ptr<const CUDA_MEMCPY3D> copy;
    bool other_ends = false;  // the copy's ends were of other types once: an instance may have those
    std::shared_ptr<const ShownKernel> kernel;
    std::shared_ptr<std::vector<CUstreamBatchMemOpParams>> batch;
    std::shared_ptr<const std::vector<CUmemAccessDesc>> access;  // of one that allocates
    std::shared_ptr<const std::vector<CUgraph>> bodies;          // of a conditional node
};

struct GraphExec {
    const ClientSession* session = nullptr;
    uint64_t number = 0;
    uint64_t handle = 0;
    bool has_needs = false;
    uint64_t graph = 0;  // handle of what it was made of; 0: changed as a whole since
    std::shared_ptr<const GraphNeeds> needs;
    // Of graphs that the program has put inside the instance, by the handle of the node.
    std::map<uint64_t, std::shared_ptr<const GraphNeeds>> needs_inside;
};

// An object of the program that graphs keep alive. The worker's driver counts the references.
struct UserObject {
    uint64_t number = 0;
    uint64_t handle = 0;
    CUhostFn destroy = nullptr;
    void* object = nullptr;
};

using Graphs = HandleRegistry<Graph, HandleKind::graph>;
using GraphNodes = HandleRegistry<GraphNode, HandleKind::graph_node>;
using GraphExecs = HandleRegistry<GraphExec, HandleKind::graph_exec>;
using UserObjects = HandleRegistry<UserObject, HandleKind::user_object>;
Graphs& graphs();
GraphNodes& graph_nodes();
GraphExecs& graph_execs();
UserObjects& user_objects();

inline Graph* find_graph(CUgraph handle) {
    return graphs().find(value_of(handle));
}
inline GraphNode* find_graph_node(CUgraphNode handle) {
    return graph_nodes().find(value_of(handle));
}
// By our handle, or by the driver's (name_by_driver()).
GraphExec* find_graph_exec(CUgraphExec handle);
inline CUresult number_of(CUgraph handle, uint64_t& number) {
    return number_of_object(find_graph(handle), number, CUDA_ERROR_INVALID_VALUE);
}
inline CUresult number_of(CUgraphNode handle, uint64_t& number) {
    return number_of_object(find_graph_node(handle), number, CUDA_ERROR_INVALID_VALUE);
}
inline CUresult number_of(CUgraphExec handle, uint64_t& number) {
    return number_of_object(find_graph_exec(handle), number, CUDA_ERROR_INVALID_VALUE);
}

inline CUresult number_of(CUuserObject handle, uint64_t& number) {
    return number_of_object(user_objects().find(value_of(handle)), number, CUDA_ERROR_INVALID_VALUE);
}

// What a call about graphs has named: what it makes or finds belongs there.
struct NamedGraph {
    uint64_t graph = 0;  // handle: the first graph that was named, else the one of the first node
    uint64_t node = 0;   // handle of the first node that was named
    bool by_itself = false;

    void name(CUgraph handle);
    void name(CUgraphNode handle);
};

// The handle of something that the call is about to make. forget() undoes it.
void mint(CUgraph& handle);
void mint(CUgraphNode& handle);
void mint(CUgraphExec& handle);
// The call has made it.
void made(CUgraph handle, const NamedGraph& where);
void made(CUgraphNode handle, const NamedGraph& where);
void made(CUgraphExec handle, const NamedGraph& where);
// Kernels may launch it, and find its handle in their arguments or in memory: so the program gets the driver's instead of
// ours. False if another instance, of another GPU, is called so: then it keeps ours.
bool name_by_driver(CUgraphExec& handle, uint64_t name);
// It has become part of the node's graph.
void moved_into(CUgraph handle, CUgraphNode node);
// Whether it is a body of a conditional node, or inside one.
bool is_in_body(CUgraph graph);
// However deep; and itself.
bool holds(CUgraph outer, CUgraph inner);
// It is gone, with all that it owns.
void forget(CUgraph handle);
void forget(CUgraphNode handle);
void forget(CUgraphExec handle);
void forget_graphs_in(CUgraphNode node);

// What launches need of the program. It goes with the outermost graph and the instance.
void add_needs(CUgraph graph, const GraphNeeds& more);
std::shared_ptr<const GraphNeeds> needs_of(CUgraph graph);           // null: nothing
HostCopies::Copy same_copy_in(CUgraph graph, const HostCopy& like);  // null: none of the same rows
std::shared_ptr<const GraphNeeds> needs_of(CUgraphExec exec);
void set_needs(CUgraph graph, std::shared_ptr<GraphNeeds> needs);
// Something of the graph goes or changes that may have needed what is kept for it.
void needs_may_be_less(CUgraph graph);
void set_needs(CUgraphExec exec, std::shared_ptr<const GraphNeeds> needs);

// What a number in an answer of the session stands for; 0: null.
void find_numbered(const ClientSession& session, uint64_t number, const NamedGraph& where, CUgraph& handle);
void find_numbered(const ClientSession& session, uint64_t number, const NamedGraph& where, CUgraphNode& handle);
void find_numbered(const ClientSession& session, uint64_t number, const NamedGraph& where, CUevent& handle);

}  // namespace tnr::cuda
