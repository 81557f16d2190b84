// What a program has at once at most: the client counts it, and the worker checks.
#pragma once

#include <cstddef>

namespace tnr::wire {

// Contexts beside the primary ones. On a real GPU each takes hundreds of MiB, so there is hardly room for more; no program is
// known to have more than a few.
inline constexpr size_t contexts_max = 256;

}  // namespace tnr::wire
