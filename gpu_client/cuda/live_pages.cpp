// See live_pages.hpp.
#include "gpu_client/cuda/live_pages.hpp"

#include <algorithm>
#include <cstring>

namespace tnr::cuda {

namespace {

constexpr size_t word_bytes = 4;

bool same_word(std::span<const std::byte> one, std::span<const std::byte> other, size_t at) {
    return std::memcmp(&one[at], &other[at], std::min(word_bytes, one.size() - at)) == 0;
}

void copy_word(std::span<std::byte> to, std::span<const std::byte> from, size_t at) {
    std::memcpy(&to[at], &from[at], std::min(word_bytes, to.size() - at));
}

}  // namespace

std::vector<ByteRun> changed_words(std::span<const std::byte> before, std::span<const std::byte> after, size_t first) {
    const size_t turn = first / word_bytes * word_bytes;
    std::vector<ByteRun> runs;
    auto add = [&](size_t begin, size_t end) {
        bool goes_on = false;
        for (size_t at = begin; at < end; at += word_bytes) {
            const bool differs = !same_word(before, after, at);
            if (differs && !goes_on) runs.push_back({at, 0});
            if (differs) runs.back().count += std::min(word_bytes, after.size() - at);
            goes_on = differs;
        }
    };
    add(turn, after.size());
    add(0, std::min(turn, after.size()));
    return runs;
}

void LivePage::take_in(const PageBytes& seen) {
    for (size_t at = 0; at < seen.size(); at += word_bytes)
        if (same_word(known, theirs, at)) copy_word(known, seen, at);
    theirs = seen;
}

bool Looks::add(PageBytes look) {
    const bool is_first = latest_.empty();
    if (is_first && before_.empty()) before_ = look;
    bool all_known = true;
    seen_ = look;
    for (size_t at = 0; at < look.size() && !is_first; at += word_bytes) {
        if (!same_word(latest_, before_, at))
            copy_word(seen_, latest_, at);  // a newer value may be ahead of what led up to it
        else
            all_known &= same_word(look, before_, at);
    }
    latest_ = std::move(look);
    return all_known && !is_first;
}

}  // namespace tnr::cuda
