// The two ends of a process that nobody announces: fork, whose child must keep its hands off our sockets, and exit,
// after which the GPU must be free at once.
#pragma once

#include <string>

namespace tnr::cuda {

// Once per process; later calls do nothing.
void watch_fork_and_exit();
// The session's address: the child of a fork closes its inherited ends of connections to it, so that the worker sees
// the parent's death even while a child lives on.
void remember_endpoint(const std::string& endpoint);

}  // namespace tnr::cuda
