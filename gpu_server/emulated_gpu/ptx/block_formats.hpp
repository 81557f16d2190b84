// Block-compressed texels (BC1 to BC5, which others call DXT, RGTC or S3TC): 4 by 4 of them share 8 or 16 bytes, which name
// two colors or values and for each texel one between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tnr::ptx {

// The last two can be copied, but what their blocks mean is not known here.
enum class BlockFormat : uint8_t { none, bc1, bc2, bc3, bc4_unsigned, bc4_signed, bc5_unsigned, bc5_signed, bc6h, bc7 };

constexpr uint32_t block_side = 4;  // texels
constexpr uint32_t block_bytes_of(BlockFormat format) {
    bool small = format == BlockFormat::bc1 || format == BlockFormat::bc4_unsigned || format == BlockFormat::bc4_signed;
    return small ? 8 : 16;
}
constexpr bool is_decoded(BlockFormat format) {
    return format != BlockFormat::bc6h && format != BlockFormat::bc7;
}
constexpr bool has_colors(BlockFormat format) {
    return format == BlockFormat::bc1 || format == BlockFormat::bc2 || format == BlockFormat::bc3;
}

// Red, green, blue and alpha of one texel of the block: from 0, or if signed from -1, to 1. Channels that the format lacks
// are 0, but for alpha, which is 1. Of decoded formats only.
std::array<float, 4> texel_of_block(BlockFormat format, const std::byte* block, uint32_t x, uint32_t y);

}  // namespace tnr::ptx
