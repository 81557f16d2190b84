// Functions of an instance whose copies from and to the host change: those that see what a copy brings, or bring what it
// copies, have to work on the memory that it has from then on. Launches that are on their way keep to the old one, and so do
// other instances of the graph: so each such function gets a ticket of its own.
#pragma once

#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/graph_needs.hpp"

namespace tnr::cuda {

struct ToldFunction {
    uint64_t ticket = 0;  // the instance's
    CUgraphNode node = nullptr;
};

// The instance's functions that see or bring the copy; `graph` is what it was made of. CUDA_ERROR_NOT_SUPPORTED if one is
// not a node of the graph itself, since only those can be changed.
CUresult find_functions_of(const GraphNeeds& needs, CUgraph graph, const HostCopy& copy,
                           std::vector<ToldFunction>& found);
// They see or bring `now` instead of what the instance had before.
CUresult tell_functions(CUgraphExec exec, const std::vector<ToldFunction>& functions, const HostCopies::Copy& before,
                        const HostCopies::Copy& now);

}  // namespace tnr::cuda
