// Each thread's stack of current contexts.
#pragma once

#include <memory>
#include <vector>

#include "gpu_server/emulated_gpu/driver/green_context.hpp"

namespace tnr::emulated {

// Contexts are never freed, so the pointers stay good. A null at the top means that none is current.
struct Current {
    Context* context = nullptr;
    std::shared_ptr<GreenContext> green;  // whose primary context `context` is, if it was converted; mostly none
};
using ContextStack = std::vector<Current>;
ContextStack& context_stack();

}  // namespace tnr::emulated
