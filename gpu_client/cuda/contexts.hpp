// How contexts begin and end.
#pragma once

#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// True if all flags are known and at most one of them says how to wait.
bool are_context_flags(unsigned flags);
// What cuDevicePrimaryCtxRetain and cuDevicePrimaryCtxRelease do.
CUresult retain_primary(Device& device) TNR_EXCLUDES(primary_contexts_turn());
CUresult release_primary(Device& device) TNR_EXCLUDES(primary_contexts_turn());
// Waits for all work of the context; memory freed before may then be reused.
CUresult synchronize_context(Context& context);
// Drops everything that belonged to the context: memory, streams, events, modules, values that libraries kept.
void context_ends(Context& context);

}  // namespace tnr::cuda
