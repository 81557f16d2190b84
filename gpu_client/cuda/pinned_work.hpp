// What a GPU does in pinned memory when a program addresses it as device memory: fills, and copies from host to host. Done
// in this process, in the order of the stream.
#pragma once

#include <functional>

#include "gpu_client/cuda/copies.hpp"

namespace tnr::cuda {

// The bytes that rows span, from the first to behind the last.
uint64_t extent(uint64_t row_bytes, uint64_t rows, uint64_t pitch);

struct Fill {
    uint64_t address = 0;
    uint32_t value = 0;
    unsigned unit = 1;  // bytes of the value
    size_t width = 0;   // units
    size_t height = 1, pitch = 0;
};
// All of it must be pinned. `wait`: the call returns when it is filled.
CUresult fill_pinned(const Fill& fill, CUstream stream, bool wait);

}  // namespace tnr::cuda
