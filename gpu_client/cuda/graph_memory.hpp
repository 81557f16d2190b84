// Memory that graphs allocate when they run: its addresses are the worker's driver's, outside the devices' ranges, and
// can be used from when the node is made.
#pragma once

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// In a stream that is being captured: a node that allocates.
CUresult capture_allocation(const StreamRef& stream, uint64_t bytes, CUdeviceptr& address);
// A node that frees, if the stream is being captured; otherwise what launches have left is freed.
CUresult free_graph_memory(const StreamRef& stream, uint64_t address);
CUresult free_graph_memory_now(uint64_t address);

}  // namespace tnr::cuda
