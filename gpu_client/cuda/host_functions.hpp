// Functions of the program that a stream calls when it gets there.
#pragma once

#include <cstdint>
#include <functional>

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

// Calls `run` on a thread of ours when the stream gets there; the stream goes on when it has returned.
CUresult run_in_stream(CUstream stream, std::function<void()> run);

// A stream has reached the function of this ticket. Runs it soon, on a thread of its own: it may take its time.
void run_host_function_soon(uint64_t ticket);

}  // namespace tnr::cuda
