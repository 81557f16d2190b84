// Threads of the library's own, inside a program that knows nothing of them.
#pragma once

#include <functional>

namespace tnr::cuda {

// Detached, since nothing may be joined while a program exits. All signals are blocked: they are the program's, and its
// handlers must run on its own threads.
void start_background_thread(std::function<void()> run);

}  // namespace tnr::cuda
