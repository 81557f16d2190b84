// What a tensor map of the emulated GPU holds: the driver writes it, copies between global and shared memory read it. Programs
// may not look inside, so the layout is ours.
#pragma once

#include <array>
#include <cstdint>

#include "gpu_server/emulated_gpu/ptx/types.hpp"

namespace tnr::ptx {

struct TensorMap {
    static constexpr uint64_t ours = 0x70616d726f736e74;  // "tnsormap"
    static constexpr uint32_t rank_max = 5, space_max = 3;
    uint64_t mark = 0;
    uint64_t address = 0;
    std::array<uint64_t, rank_max> strides{};  // in bytes; of the first axis the element's size
    std::array<uint32_t, rank_max> last{};     // of each axis: its size in elements, less one
    std::array<uint16_t, rank_max> box{};      // what a copy goes over, in elements
    std::array<uint8_t, rank_max> steps{};     // of which it takes every so manieth
    uint8_t rank = 0;
    uint8_t swizzle_chunks = 0;  // 16-byte chunks of shared memory that are exchanged: 0 (none), 2, 4, 8
    uint8_t nan_bytes = 0;       // what lies outside the tensor is not zero, but a NaN of so many bytes (0: zero)
    Type element = Type::none;   // what reductions take the elements for
    // im2col: the axes are channels, then width, height and depth (as many as there are), then the images. A copy takes box[0]
    // channels of `pixels` pixels, one after the other in a box of each image that begins at `lower` and ends `upper` beyond
    // the image.
    uint8_t im2col = 0;  // 0 or 1; no bool, which cannot hold what a program may have written here
    std::array<int16_t, space_max> lower{}, upper{};
    uint16_t pixels = 0;
    uint8_t reserved[18] = {};
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace tnr::ptx
