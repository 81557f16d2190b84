// Text that somebody else wrote, and words for numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tnr {

// The beginning of UTF-8 text that has `bytes_max` bytes at most, without half a character at its end. What is no UTF-8 is
// cut where it is.
inline std::string_view whole_characters(std::string_view text, size_t bytes_max) {
    constexpr size_t following_max = 3;  // bytes of a character, after its first
    if (text.size() <= bytes_max) return text;
    const auto follows = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80; };
    size_t end = bytes_max;
    while (end > 0 && bytes_max - end < following_max && follows(end)) --end;
    return text.substr(0, follows(end) ? bytes_max : end);
}

// Text that came from elsewhere, fit for a line that people read: what controls a terminal, turns the direction of writing or
// is no UTF-8 becomes '?'.
std::string harmless(std::string_view foreign);

// "1 file", "2 files".
std::string counted(uint64_t count, const std::string& word);

// "one, two", of any container of texts.
template <class Words>
std::string comma_separated(const Words& words) {
    std::string text;
    for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
}

// The word among `known` that somebody who typed `word` probably meant; empty when none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& known);
// "did you mean 'status'? ": a hint's beginning, empty when none is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace tnr
