// What kernels call to change kernels of graphs: cudaGraphKernelNodeSetParam, ...SetEnabled, ...SetGridDim and
// ...UpdatesApply. Whose nodes they are, the driver knows (Launch::update_node).
#pragma once

#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

Builtin node_update_named(std::string_view function);
bool node_update_fits(const Call& call);
void call_node_update(Warp& warp, uint32_t lane, const Call& call);

}  // namespace tnr::ptx
