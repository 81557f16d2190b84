// Fork and exit, which no call announces: the child of a fork must not touch our sockets, and after exit the GPU must
// be free at once.
#pragma once

#include <string>

namespace tnr::cuda {

// Once per process; later calls do nothing.
void watch_fork_and_exit();
// Notes the session's address. The child of a fork closes the connections to it that it has inherited, so that the
// worker sees the parent's death even while a child lives on.
void remember_endpoint(const std::string& endpoint);

}  // namespace tnr::cuda
