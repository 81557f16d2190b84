// What the handlers of calls on graphs share.
#pragma once

#include "gpu_client/protocol/graph_records.hpp"
#include "gpu_server/worker/session.hpp"

namespace tnr::worker {

// Null: the stream is not being captured, or its capture is spoilt.
CUgraph graph_of_capture(CUstream stream);

template <class Node>
std::vector<CUgraphNode> handles_of(const std::vector<Node>& nodes) {
    std::vector<CUgraphNode> handles;
    for (auto& node : nodes) handles.push_back(node.handle);
    return handles;
}

// What comes before some nodes of a graph, and in graphs that are nodes there.
struct Ancestors {
    std::vector<uint64_t> written;  // addresses that copies write to
    bool functions = false;         // of the client

    // CUDA_ERROR_NOT_SUPPORTED for a driver that cannot tell.
    CUresult find(const std::vector<CUgraphNode>& before);
};

}  // namespace tnr::worker
