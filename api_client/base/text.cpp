// See text.hpp.
#include "api_client/base/text.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tnr {

// The bytes of the character that the text begins with, and what it is; 0 bytes: it is no UTF-8.
static std::pair<size_t, uint32_t> first_character(std::string_view text) {
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t size = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
    if (size == 0 || size > text.size()) return {0, 0};
    uint32_t code = size == 1 ? first : first & (0xff >> (size + 1));
    for (size_t i = 1; i < size; ++i) {
        const auto next = static_cast<unsigned char>(text[i]);
        if ((next & 0xc0) != 0x80) return {0, 0};
        code = code << 6 | (next & 0x3f);
    }
    const bool longer_than_need_be = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
    const bool half_of_a_pair = code >= 0xd800 && code < 0xe000;
    return longer_than_need_be || half_of_a_pair || code > 0x10ffff ? std::pair{size_t{0}, uint32_t{0}}
                                                                    : std::pair{size, code};
}

// Of Unicode, beside the C0 and C1 controls: what begins lines, and what turns the direction of writing.
static bool is_control(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string harmless(std::string_view foreign) {
    std::string text;
    while (!foreign.empty()) {
        auto [size, code] = first_character(foreign);
        if (size == 0 || is_control(code))
            text += '?';
        else
            text += foreign.substr(0, size);
        foreign.remove_prefix(std::max<size_t>(size, 1));
    }
    return text;
}

std::string counted(uint64_t count, const std::string& word) {
    return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

}  // namespace tnr
