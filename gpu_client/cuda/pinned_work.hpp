// What a GPU does in pinned memory when a program addresses it as device memory: fills, and copies from host to host. Done
// in this process, in the order of the stream.
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
// All of it must be pinned. `wait`: the call returns when it is filled.
CUresult fill_pinned(const Fill& fill, CUstream stream, bool wait);
// After the stream's earlier work.
CUresult copy_on_host(HostRows to, HostRows from, CUstream stream, bool wait);

}  // namespace tnr::cuda
