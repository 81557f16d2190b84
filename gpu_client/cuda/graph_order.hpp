// In which order a graph reaches the program's functions and the copies from and to its memory (graph_needs.hpp).
#pragma once

#include "gpu_client/cuda/graph_objects.hpp"

namespace tnr::cuda {

// Call it before the graph is instantiated, or an instance updated from it: tells its functions which copies they come
// after, and which come after them, and brings the graph's needs into the order that launches keep. Asks the worker, if
// there is anything to find out. Where no order of mirrors could be right, the graph's copies share the program's pinned
// memory instead, or parts of one mirror where it is not pinned; CUDA_ERROR_NOT_SUPPORTED where that does not do either.
CUresult order_needs(CUgraph graph);

// The same for an instance of a graph inside another, which has the needs of both: `own` are those of it. It may copy from and
// to the host, and no more.
CUresult order_needs_inside(CUgraph inside, std::shared_ptr<const GraphNeeds>& own);

// Those of an instance's copies to the host that are of a graph which was inside when it was made. For instances without
// functions: asking is telling those what they see.
CUresult find_copies_inside(CUgraph inside, const GraphNeeds& of_instance, HostCopies& found);

}  // namespace tnr::cuda
