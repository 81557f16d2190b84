// Changing instances: what of a node's work may change while the instance is the same, and updates from whole graphs.
#pragma once

#include "gpu_server/emulated_gpu/driver/graph_exec.hpp"

namespace tnr::emulated {

// Whether an instance's node may do `to` instead of `from`, which have the same type, and if not, why.
CUgraphExecUpdateResult check_change(const NodeWork& from, const NodeWork& to);
// Gives the nodes of the instance's graph `mine` the parameters of those of a graph with the same nodes and edges. All or
// nothing; `report` says why not.
CUresult update_graph(Graph& mine, const Graph& theirs, CUgraphExecUpdateResultInfo& report);

}  // namespace tnr::emulated
