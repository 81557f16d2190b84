// One side of a copy, which may be rows of a larger thing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

// Rows `pitch` apart; one row for plain copies.
struct HostRows {
    std::byte* address = nullptr;
    uint64_t row_bytes = 0, rows = 1, pitch = 0;
};
struct DeviceRows {
    uint64_t address = 0, pitch = 0;
    // In an array instead, which the caller has checked: its number.
    uint64_t array = 0;
    uint64_t x_bytes = 0, y = 0, z = 0;
};

// The bytes that rows span, from the start of the first to the end of the last.
constexpr uint64_t extent(uint64_t row_bytes, uint64_t rows, uint64_t pitch) {
    return rows == 0 || row_bytes == 0 ? 0 : (rows - 1) * pitch + row_bytes;
}

}  // namespace tnr::cuda
