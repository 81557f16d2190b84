// Copies from and to pinned memory in graphs that mirrors do not suit: graph_needs.hpp.
#pragma once

#include "gpu_client/cuda/boxes.hpp"
#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// The graph's copies from and to pinned memory of the program become copies from and to what GPUs find there, for good:
// the memory is shared from now on (shared_pages.hpp). Those of other host memory keep their mirrors.
CUresult share_pinned_copies(CUgraph graph);
// The same for those whose memory is shared already: other work of the graph may use it between its copies.
CUresult follow_shared_copies(CUgraph graph);
// A copy that is described again afterwards is one from and to what GPUs find there. CUDA_ERROR_NOT_SUPPORTED: it is not pinned.
CUresult share_box(Context& context, const Box& box);

}  // namespace tnr::cuda
