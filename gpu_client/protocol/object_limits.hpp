// What a program has at once at most: the client counts it, and the worker checks.
#pragma once

#include <cstddef>

namespace tnr::wire {

// Contexts beside the primary ones. A real GPU has room for some 200 (each takes about 300 MiB of it), and no program is
// known to have more than a few.
inline constexpr size_t contexts_max = 256;

}  // namespace tnr::wire
