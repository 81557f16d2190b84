// Contexts begin and end.
#pragma once

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// Known flags, and one way of waiting at most.
bool are_context_flags(unsigned flags);
// Waits for all work of the context; what was freed before may then be used again.
CUresult synchronize_context(Context& context);
// Everything that belonged to the context is gone: memory, streams, events, modules, values that libraries kept.
void context_ends(Context& context);

}  // namespace tnr::cuda
