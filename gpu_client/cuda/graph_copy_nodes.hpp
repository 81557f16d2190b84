// Copies as nodes of graphs, for what changes them beside the program.
#pragma once

#include <functional>

#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/host_copies.hpp"

namespace tnr::cuda {

// The copy whose mirror one of the same rows is to have; null: one of its own.
using FindSame = std::function<HostCopies::Copy(const HostCopy& like)>;

// The graph's node does another copy. Without `find_same` its host sides have the mirrors that the graph has for their rows.
CUresult set_copy_node(CUgraphNode node, const CUDA_MEMCPY3D* given, const FindSame& find_same = {});

// Those of the copies that nodes of the graph make, and of graphs inside it. CUDA_ERROR_NOT_SUPPORTED where bodies of
// conditional nodes are inside.
CUresult find_copies_of_nodes(CUgraph graph, const HostCopies& all, HostCopies& found);

}  // namespace tnr::cuda
