// Each thread's stack of current contexts.
#pragma once

#include <vector>

#include "gpu_server/emulated_gpu/driver/context.hpp"

namespace tnr::emulated {

// Contexts are never freed, so the pointers stay good. A null at the top means that none is current.
using ContextStack = std::vector<Context*>;
ContextStack& context_stack();

}  // namespace tnr::emulated
