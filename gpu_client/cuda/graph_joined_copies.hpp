// Copies in graphs whose parts of the program's memory overlap, where no order of mirrors is right: graph_needs.hpp.
#pragma once

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

// Copies of the graph, and of graphs inside it, that overlap get parts of one mirror, which is laid out as the program's
// memory is. Launches fill it before the graph and fetch from it behind, and what happens in between is in the graph's own
// order; functions of the program see and bring the parts of copies. Copies in other contexts than the current one keep
// their mirrors, and so do those that a function could not tell apart: of different rows from one place to another.
CUresult join_mirrors(CUgraph graph);

}  // namespace tnr::cuda
