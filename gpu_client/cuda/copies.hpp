// Moving data between the program's memory and the GPU's.
#pragma once

#include "gpu_client/cuda/rows.hpp"

namespace tnr::cuda {

// `wait`: the call returns when the host memory may be used again and, from the device, the data is there. Without it,
// only pinned memory is used after the return.
CUresult copy_to_device(DeviceRows to, HostRows from, CUstream stream, bool wait);
CUresult copy_from_device(HostRows to, DeviceRows from, CUstream stream, bool wait);
CUresult copy_on_device(DeviceRows to, DeviceRows from, uint64_t row_bytes, uint64_t rows, CUstream stream, bool wait);

}  // namespace tnr::cuda
