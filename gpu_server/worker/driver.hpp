// The driver that this worker replays on: a libcuda.so.1 loaded by path, the real one or the emulated GPU's.
#pragma once

#include <string>

#include "api_client/base/result.hpp"
#include "driver_table.hpp"  // generated

namespace tnr::worker {

// Filled by load_driver(); every function that the driver lacks is null. Read by any thread.
const DriverTable& driver();

// Opens the library and initialises it (cuInit). Once per process.
Result<> load_driver(const std::string& path);

// False also where the driver cannot tell. For a wait or a question that would spoil the capture.
bool is_captured(CUstream stream);
// Whether what is put into the stream now begins at once: CUDA_ERROR_NOT_READY if not. A stream that waits for the null stream
// is idle, as drivers say, while that one is not.
CUresult query_way(CUstream stream);

// "CUDA_ERROR_…" for logs.
std::string name_of(CUresult result);

}  // namespace tnr::worker
