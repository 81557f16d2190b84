// Copies from and to pinned memory in graphs that mirrors do not suit: graph_needs.hpp.
#pragma once

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

// The graph's copies from and to pinned memory of the program become copies from and to what GPUs find there, for good:
// the memory is shared from now on (shared_pages.hpp). Those of other host memory, and of graphs inside it, keep their
// mirrors.
CUresult share_pinned_copies(CUgraph graph);

}  // namespace tnr::cuda
