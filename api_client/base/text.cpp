// See text.hpp.
#include "api_client/base/text.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
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

static char small(char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

// Edits (a letter more, less, another one, two exchanged) that make one word of the other. Capitals count as small letters.
static size_t distance(const std::string& a, const std::string& b) {
    std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    std::iota(last.begin(), last.end(), size_t{0});
    const auto same = [&](size_t in_a, size_t in_b) { return small(a[in_a]) == small(b[in_b]); };
    for (size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (size_t k = 1; k <= b.size(); ++k) {
            row[k] = std::min({last[k] + 1, row[k - 1] + 1, last[k - 1] + !same(i - 1, k - 1)});
            if (i > 1 && k > 1 && same(i - 1, k - 2) && same(i - 2, k - 1))
                row[k] = std::min(row[k], before_last[k - 2] + 1);
        }
        before_last = std::exchange(last, row);
    }
    return last[b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
    std::string best;
    size_t best_distance = std::max<size_t>(word.size() / 3, 1) + 1;
    for (const auto& each : known)
        if (size_t edits = distance(word, each); edits < best_distance) {
            best = each;
            best_distance = edits;
        }
    return best;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
    std::string best = nearest(word, known);
    return best.empty() ? "" : "did you mean '" + best + "'? ";
}

}  // namespace tnr
