// Graphs that kernels launch, and bodies of conditional nodes, which kernels run or not. Nobody fills mirrors then, or
// fetches what is in them (graph_needs.hpp).
#pragma once

#include "gpu_client/cuda/graph_objects.hpp"

namespace tnr::cuda {

// Call it before the graph is instantiated for kernels, or such an instance updated from it. Its copies from and to pinned
// memory of the program become copies from and to what GPUs find there, for good. CUDA_ERROR_NOT_SUPPORTED where a copy's
// host memory is not pinned: drivers take none such in these graphs.
CUresult prepare_for_kernels(CUgraph graph);
// The same for a graph that goes into such a body, and for a copy there.
CUresult prepare_for_body(CUgraph body, CUgraph inside);
CUresult prepare_for_body(CUgraph body, Context& context, const CUDA_MEMCPY3D& copy);
// Kernels know the instance by the driver's handle, so the program gets that.
void name_for_kernels(CUgraphExec& exec);
// Whether it was.
bool is_for_kernels(CUgraphExec exec);

}  // namespace tnr::cuda
