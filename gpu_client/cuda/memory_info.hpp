// cuMemGetInfo, answered here while no other process of the claim uses the GPU.
#pragma once

namespace tnr::cuda {

// The worker's word that another process has come or gone: what it said before about free memory is worth nothing.
// Called with the session's receive lock held.
void memory_shared();

}  // namespace tnr::cuda
