// Memory that kernels and the program address alike, and that lives on a device: what makes it, for managed memory and
// for mapped host memory, and whose work may use it (cuStreamAttachMemAsync).
#pragma once

#include "gpu_client/cuda/shared_pages.hpp"

namespace tnr::cuda {

// Allocates on the context's device; the program finds the memory at the same address. All devices may use it. `pool`: the
// handle of the one that it is taken from, 0: none.
CUresult allocate_shared(Context& context, SharedKind kind, uint64_t bytes, uint64_t pool, uint64_t& address);
// The GPU's copy of the program's own memory: `device` stands for `host`.
CUresult share_program_memory(Context& context, uint64_t host, uint64_t bytes, uint64_t& device);
// Gives back what either has allocated; `host` is where the program sees it.
bool free_shared(uint64_t host);

}  // namespace tnr::cuda
