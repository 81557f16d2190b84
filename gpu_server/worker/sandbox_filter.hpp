// The system calls that a worker can do without, refused by the kernel. A list of what is denied, not of what is
// allowed: drivers change what they call with every release, and a list of allowed calls would break with them.
#pragma once

#include "api_client/base/result.hpp"

namespace tnr::worker {

// Applies to the calling thread and to those it starts later; there is no way back. `control_socket`: the only descriptor that
// messages (sendmsg) may be sent to; -1 is none.
Result<> filter_system_calls(int control_socket);

// Where the kernel can do so (Linux 6.7, Landlock): no TCP socket of the process can be bound or connected any more.
void forbid_tcp_ends();

}  // namespace tnr::worker
