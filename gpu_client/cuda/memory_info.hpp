// cuMemGetInfo, answered here while no other process of the claim uses the GPU.
#pragma once

namespace tnr::cuda {

// The worker reports that another process has come or gone: its earlier answers about free memory no longer hold.
// Called with the session's receive lock held.
void memory_shared();
// The driver has taken memory for itself, or given it back, by a call that the table does not mark `takes_memory`.
void driver_took_memory();

}  // namespace tnr::cuda
