// Functions of the program that a stream calls when it gets there.
#pragma once

#include <cstdint>

namespace tnr::cuda {

// A stream has reached the function of this ticket. Runs it soon, on a thread of its own: it may take its time.
void run_host_function_soon(uint64_t ticket);

}  // namespace tnr::cuda
