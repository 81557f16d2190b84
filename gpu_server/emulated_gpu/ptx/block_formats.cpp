// See block_formats.hpp.
#include "gpu_server/emulated_gpu/ptx/block_formats.hpp"

#include <algorithm>
#include <cstring>

namespace tnr::ptx {
namespace {

using Color = std::array<float, 4>;

uint64_t word_at(const std::byte* at) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
}

Color color_of(uint32_t packed) {  // 5, 6 and 5 bits
    return {static_cast<float>(packed >> 11 & 31) / 31, static_cast<float>(packed >> 5 & 63) / 63,
            static_cast<float>(packed & 31) / 31, 1};
}

Color between(const Color& one, const Color& other, float share) {
    Color result{};
    for (size_t i = 0; i < result.size(); ++i) result[i] = one[i] + share * (other[i] - one[i]);
    return result;
}

// Of the two colors, the choice 2 and 3 stand for thirds between them. In a block that may be transparent and names the
// smaller one first, 2 is half way, and 3 is nothing.
Color color_at(uint64_t block, uint32_t texel, bool may_be_transparent) {
    const auto first = static_cast<uint32_t>(block & 0xffff), second = static_cast<uint32_t>(block >> 16 & 0xffff);
    const auto choice = static_cast<uint32_t>(block >> (32 + 2 * texel) & 3);
    const bool halves = may_be_transparent && first <= second;
    if (choice == 0) return color_of(first);
    if (choice == 1) return color_of(second);
    if (!halves) return between(color_of(first), color_of(second), choice == 2 ? 1.0f / 3 : 2.0f / 3);
    return choice == 2 ? between(color_of(first), color_of(second), 0.5f) : Color{};
}

float end_of(uint64_t byte, bool is_signed) {
    if (!is_signed) return static_cast<float>(byte & 0xff) / 255;
    return std::max(static_cast<float>(static_cast<int8_t>(byte & 0xff)) / 127, -1.0f);
}

// Between the two values are six others; or four, if the first one is not the larger, and the ends of the scale.
float value_at(uint64_t block, uint32_t texel, bool is_signed) {
    const float first = end_of(block, is_signed), second = end_of(block >> 8, is_signed);
    const auto choice = static_cast<uint32_t>(block >> (16 + 3 * texel) & 7);
    const bool larger = is_signed ? static_cast<int8_t>(block & 0xff) > static_cast<int8_t>(block >> 8 & 0xff)
                                  : (block & 0xff) > (block >> 8 & 0xff);
    if (choice < 2) return choice == 0 ? first : second;
    if (!larger && choice >= 6) return choice == 7 ? 1 : is_signed ? -1.0f : 0.0f;
    const float steps = larger ? 7 : 5;
    return first + static_cast<float>(choice - 1) / steps * (second - first);
}

}  // namespace

std::array<float, 4> texel_of_block(BlockFormat format, const std::byte* block, uint32_t x, uint32_t y) {
    const uint32_t texel = y * block_side + x;
    const uint64_t first = word_at(block);
    const uint64_t second = block_bytes_of(format) > 8 ? word_at(block + 8) : 0;
    Color color{0, 0, 0, 1};
    switch (format) {
        case BlockFormat::none:
        case BlockFormat::bc6h:
        case BlockFormat::bc7:
            break;
        case BlockFormat::bc1:
            return color_at(first, texel, true);
        case BlockFormat::bc2:
            color = color_at(second, texel, false);
            color[3] = static_cast<float>(first >> (4 * texel) & 15) / 15;
            break;
        case BlockFormat::bc3:
            color = color_at(second, texel, false);
            color[3] = value_at(first, texel, false);
            break;
        case BlockFormat::bc4_unsigned:
        case BlockFormat::bc4_signed:
            color[0] = value_at(first, texel, format == BlockFormat::bc4_signed);
            break;
        case BlockFormat::bc5_unsigned:
        case BlockFormat::bc5_signed:
            color[0] = value_at(first, texel, format == BlockFormat::bc5_signed);
            color[1] = value_at(second, texel, format == BlockFormat::bc5_signed);
            break;
    }
    return color;
}

}  // namespace tnr::ptx
