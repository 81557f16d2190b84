// Whether this process may have more threads and descriptors.
//
// ZeroMQ ends the process when it cannot have those that its own threads need, which is no library's business: so ask
// before a context's first socket. What was there when it was asked for may be gone a moment later; that is the program's
// doing, and rare.
#pragma once

#include <cstddef>

#include "api_client/base/result.hpp"

namespace tnr::wire {

// Takes so many of both at once, and gives them back.
Result<> room_for(size_t threads, size_t descriptors);

}  // namespace tnr::wire
