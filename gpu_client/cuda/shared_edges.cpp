// See shared_edges.hpp.
#include "gpu_client/cuda/shared_edges.hpp"

#include <atomic>
#include <cstring>
#include <utility>

namespace tnr::cuda {

// A program that changes its words all the time is not waited for.
static constexpr int edge_looks_max = 16;

namespace {

template <class Word>
Word word_at(const std::byte* at) {
    Word word{};
    std::memcpy(&word, at, sizeof(Word));
    return word;
}

template <class Word>
std::atomic_ref<Word> program_word(uint64_t at) {
    return std::atomic_ref<Word>(*reinterpret_cast<Word*>(at));
}

// Calls use(address, word) for each word, which says by its type how large it is: as large as it can be, since the
// program's variables are aligned.
template <class Use>
void for_words(uint64_t begin, uint64_t end, Use use) {
    for (uint64_t at = begin; at < end;) {
        auto fits = [&](uint64_t size) { return at % size == 0 && end - at >= size; };
        auto next = [&](auto word) {
            use(at, word);
            return sizeof(word);
        };
        at += fits(8) ? next(uint64_t{}) : fits(4) ? next(uint32_t{}) : fits(2) ? next(uint16_t{}) : next(uint8_t{});
    }
}

// Where the GPU has changed a byte from `had` to `has`, and the program has not changed it.
template <class Word>
Word merged(Word now, Word had, Word has) {
    Word mask = 0xff, all = now;
    for (size_t i = 0; i < sizeof(Word); ++i, mask = static_cast<Word>(mask << 8U))
        if ((had & mask) != (has & mask) && (now & mask) == (had & mask))
            all = static_cast<Word>((all & ~mask) | (has & mask));
    return all;
}

}  // namespace

PageBytes SharedEdge::here() const {
    PageBytes bytes_here(lead() + bytes);
    for_words(host, host + bytes, [&](uint64_t at, auto word) {
        word = program_word<decltype(word)>(at).load(std::memory_order_acquire);
        std::memcpy(&bytes_here[lead() + (at - host)], &word, sizeof(word));
    });
    return bytes_here;
}

// Asked before each launch: without a copy.
bool SharedEdge::changed_here() const {
    bool changed = false;
    for_words(host, host + bytes, [&](uint64_t at, auto word) {
        using Word = decltype(word);
        changed |=
            program_word<Word>(at).load(std::memory_order_acquire) != word_at<Word>(&known[lead() + (at - host)]);
    });
    return changed;
}

std::vector<ByteRun> SharedEdge::changed_to(PageBytes now) {
    auto runs = changed_words(known, now, 0);
    for (auto& run : runs) {  // the GPU may be changing the bytes beside them
        auto same = [&](size_t at) { return known[at] == now[at]; };
        for (; same(run.first); --run.count) ++run.first;
        while (same(run.first + run.count - 1)) --run.count;
    }
    known = std::move(now);
    return runs;
}

void SharedEdge::take_in(PageBytes seen) {
    for_words(host, host + bytes, [&](uint64_t at, auto word) {
        using Word = decltype(word);
        const size_t i = lead() + (at - host);
        const auto had = word_at<Word>(&known[i]), has = word_at<Word>(&seen[i]);
        if (had == has) return;
        auto there = program_word<Word>(at);
        Word now = there.load(std::memory_order_relaxed);
        for (Word all = now; (all = merged(now, had, has)) != now;)
            if (there.compare_exchange_weak(now, all, std::memory_order_release, std::memory_order_relaxed)) break;
    });
    known = std::move(seen);
}

std::vector<PageBytes> settled_content(const Edges& edges) {
    auto look = [&] {
        std::vector<PageBytes> content;
        for (auto& edge : edges) content.push_back(edge->here());
        return content;
    };
    auto content = look();
    for (int i = 1; i < edge_looks_max; ++i)
        if (auto before = std::exchange(content, look()); content == before) break;
    return content;
}

}  // namespace tnr::cuda
