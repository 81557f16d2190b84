// Moving data between the program's memory and the GPU's.
#pragma once

#include "gpu_client/cuda/rows.hpp"

namespace tnr::cuda {

// With `wait`, returns once the host memory may be reused and, for copies from the device, the data has arrived.
// Without it, only pinned memory is used after the return, and what functions of the program do before it in stream order
// counts.
CUresult copy_to_device(DeviceRows to, HostRows from, CUstream stream, bool wait);
// The same without `wait`, for memory that stays there, pinned or not.
CUresult copy_lasting_to_device(DeviceRows to, HostRows from, CUstream stream);
CUresult copy_from_device(HostRows to, DeviceRows from, CUstream stream, bool wait);
// Memory of another device's pool must be open to the stream's device, unless the program named contexts (`of_peers`).
CUresult copy_on_device(DeviceRows to, DeviceRows from, uint64_t row_bytes, uint64_t rows, CUstream stream, bool wait,
                        bool of_peers = false);

}  // namespace tnr::cuda
