// What a tensor map of the emulated GPU holds: the driver writes it, copies between global and shared memory read it. Programs
// may not look inside, so the layout is ours.
#pragma once

#include <array>
#include <cstdint>

#include "gpu_server/emulated_gpu/ptx/types.hpp"

namespace tnr::ptx {

// What a copy puts where a tensor of floats ends, repeated for wide ones, and fma.oob takes for zero. NVIDIA documents a special
// NaN and not its bits; these are what others report of hardware of compute capability 12.0.
inline constexpr uint16_t oob_nan = 0x7ff7;

// How a copy finds its elements. Both enumerations may hold anything where a program has written to a map.
enum class TensorWay : uint8_t { tiles, im2col, im2col_wide, im2col_wide_128 };
// What swizzling keeps together, in the ISA's order; `flipped`: and halves of 16 bytes are exchanged in every other line.
enum class SwizzleAtom : uint8_t { bytes_16, bytes_32, bytes_32_flipped, bytes_64 };

// Values of less than a byte, which tensor maps have in packets: four bits without gaps, and sixteen values to every 16 bytes of
// shared memory, of which the tensor has only those with values.
enum class Packing : uint8_t { none, b4x16, b4x16_p64, b6x16_p32 };

struct TensorMap {
    static constexpr uint64_t ours = 0x70616d726f736e74;      // "tnsormap"
    static constexpr uint64_t of_zeros = 0x307061726f736e74;  // what a program has made by replacing fields of zeros
    static constexpr uint32_t rank_max = 5, space_max = 3;
    uint64_t mark = 0;  // one of these, or it is none
    uint64_t address = 0;
    std::array<uint64_t, rank_max> strides{};  // in bytes; of the first axis the element's size, or the packet's
    std::array<uint32_t, rank_max> last{};     // of each axis: its size in elements, less one
    std::array<uint16_t, rank_max> box{};      // what a copy goes over, in elements
    std::array<uint8_t, rank_max> steps{};     // of which it takes every so manieth
    uint8_t rank = 0;
    uint8_t swizzle_chunks = 0;  // of 16 bytes of shared memory, among which atoms are exchanged: 0 (none), 2, 4, 8
    uint8_t nan_bytes = 0;       // what lies outside the tensor is not zero, but a NaN of so many bytes (0: zero)
    Type element = Type::none;   // what reductions take the elements for
    // im2col: the axes are channels, then width, height and depth (as many as there are), then the images. A copy takes box[0]
    // channels of `pixels` pixels, one after the other in a box of each image that begins at `lower` and ends `upper` beyond
    // the image. The wide ways keep to one height and depth: at the box's end in a row they go on in the next image.
    TensorWay way = TensorWay::tiles;
    std::array<int16_t, space_max> lower{}, upper{};
    uint16_t pixels = 0;
    SwizzleAtom atom = SwizzleAtom::bytes_16;
    Packing packing = Packing::none;
    uint8_t reserved[16] = {};
};
static_assert(sizeof(TensorMap) == 128);

// What a copy moves at once: an element, or a packet of values.
struct Packet {
    uint32_t values_log2 = 0, bytes = 0, shared_bytes = 0;  // how many, what they take in the tensor, what in the box
};
constexpr Packet packet_of(const TensorMap& map) {
    switch (map.packing) {
        case Packing::b4x16:
            return {1, 1, 1};
        case Packing::b4x16_p64:
            return {4, 8, 16};
        case Packing::b6x16_p32:
            return {4, 12, 16};
        case Packing::none:
            break;
    }
    return {0, size_of(map.element), size_of(map.element)};
}

}  // namespace tnr::ptx
