// Moving data between the program's memory and the GPU's.
#pragma once

#include "gpu_client/cuda/streams.hpp"

namespace tnr::cuda {

// A side of a copy that may be rows of a larger thing. Rows `pitch` apart; one row for plain copies.
struct HostRows {
    std::byte* address = nullptr;
    uint64_t row_bytes = 0, rows = 1, pitch = 0;
};
struct DeviceRows {
    uint64_t address = 0, pitch = 0;
};

// `wait`: the call returns when the host memory may be used again and, from the device, the data is there. Without it,
// only pinned memory is used after the return.
CUresult copy_to_device(DeviceRows to, HostRows from, CUstream stream, bool wait);
CUresult copy_from_device(HostRows to, DeviceRows from, CUstream stream, bool wait);
CUresult copy_on_device(DeviceRows to, DeviceRows from, uint64_t row_bytes, uint64_t rows, CUstream stream, bool wait);
// After the stream's earlier work (pinned_work.cpp).
CUresult copy_on_host(HostRows to, HostRows from, CUstream stream, bool wait);

}  // namespace tnr::cuda
