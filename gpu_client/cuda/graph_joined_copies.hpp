// Copies in graphs whose parts of the program's memory overlap, where no order of mirrors is right: graph_needs.hpp.
#pragma once

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

// Copies of the graph that overlap get parts of one mirror. Launches fill it before the graph and fetch from it behind, and
// what happens in between is in the graph's own order. Copies with gaps between their rows, of other contexts than the
// current one, and of graphs inside the graph keep their mirrors. For graphs without functions of the program: those are
// told of whole mirrors.
CUresult join_mirrors(CUgraph graph);

}  // namespace tnr::cuda
