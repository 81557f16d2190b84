// What the calls that add nodes to graphs and change them share.
#pragma once

#include "gpu_client/cuda/graph_objects.hpp"
#include "gpu_client/cuda/table_call.hpp"
#include "gpu_client/protocol/graph_records.hpp"

namespace tnr::cuda {

// Where a node is added.
struct NodePlace {
    CUgraphNode* out;
    CUgraph graph;
    const CUgraphNode* dependencies;
    size_t count;
};

// Whether the driver there has nothing to refuse about the place. Nobody waits for the answer then: at 30 ms a graph of a
// thousand nodes would take half a minute to make. If it refuses the node all the same, calls that use the graph tell.
bool is_plain(const NodePlace& place);
inline wire::CallWay way_if(bool plain) {
    return plain ? wire::CallWay::async_ : wire::CallWay::sync;
}

// The program's pinned memory in what travels: by the GPU's address, which is given the memory if it has not got it; and back.
CUresult put_on_gpu(CUDA_MEMSET_NODE_PARAMS& fill);
void take_from_gpu(CUDA_MEMSET_NODE_PARAMS& fill);

// Calls `use` for each copy of the graph, and of graphs inside it, until one fails.
CUresult for_each_copy_node(CUgraph graph, const std::function<CUresult(CUgraphNode)>& use);
CUresult list_nodes(CUgraph graph, std::vector<CUgraphNode>& nodes);

// Puts the beginning of an AddNode: its number, its graph, its dependencies.
void put_place(TableCall& call, const Minted<CUgraphNode>& made, const NodePlace& place);
// `plain`: there is nothing to refuse about the work either.
template <class Work>
CUresult add_node(uint16_t op, const NodePlace& place, const Work& work, bool plain = false) {
    if (!place.out || (place.count != 0 && !place.dependencies)) return CUDA_ERROR_INVALID_VALUE;
    TableCall call(op, way_if(plain && is_plain(place)));
    Minted<CUgraphNode> made;
    put_place(call, made, place);
    call.put(work);
    auto result = call.send();
    if (result == CUDA_SUCCESS) *place.out = made.keep(call);
    return result;
}
template <class Work>
CUresult set_node(uint16_t op, CUgraphNode node, const Work& work, bool plain = false) {
    TableCall call(op, way_if(plain));
    call.handle(node);
    call.put(work);
    return call.send();
}
template <class Work>
CUresult set_exec_node(uint16_t op, CUgraphExec exec, CUgraphNode node, const Work& work, bool plain = false) {
    TableCall call(op, way_if(plain));
    call.handle(exec);
    call.handle(node);
    call.put(work);
    return call.send();
}

}  // namespace tnr::cuda
