// Functions of the program that run when a stream reaches them.
#pragma once

#include <cstdint>
#include <functional>

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

// Calls `run` on a thread of ours when the stream reaches it; the stream continues once `run` has returned.
CUresult run_in_stream(CUstream stream, std::function<void()> run);

// A stream has reached the function with this ticket. Hands it to the thread that runs host functions and does not wait
// for it: it may take its time.
void run_host_function_soon(uint64_t ticket);

}  // namespace tnr::cuda
