// Fills and host-to-host copies in pinned memory that a program addresses as device memory. A GPU would do them; here
// this process does, in the order of the stream.
#pragma once

#include <functional>

#include "gpu_client/cuda/rows.hpp"

namespace tnr::cuda {

struct Fill {
    uint64_t address = 0;
    uint32_t value = 0;
    unsigned unit = 1;  // bytes of the value
    size_t width = 0;   // units
    size_t height = 1, pitch = 0;
};
// All of the memory must be pinned. With `wait`, returns once it is filled.
CUresult fill_pinned(const Fill& fill, CUstream stream, bool wait);
// Runs after the stream's earlier work.
CUresult copy_on_host(HostRows to, HostRows from, CUstream stream, bool wait);

}  // namespace tnr::cuda
