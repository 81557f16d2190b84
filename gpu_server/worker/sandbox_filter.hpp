// The system calls that a worker can do without, refused by the kernel. A list of what is denied, not of what is
// allowed: drivers change what they call with every release, and a list of allowed calls would break with them.
#pragma once

#include "api_client/base/result.hpp"

namespace tnr::worker {

struct FilterOptions {
    // AF_UNIX sockets, which drivers use to look for their daemons. In an empty network namespace they find nobody.
    bool local_sockets = false;
};

// Applies to the calling thread and to those it starts later; there is no way back.
Result<> filter_system_calls(const FilterOptions& options);

}  // namespace tnr::worker
