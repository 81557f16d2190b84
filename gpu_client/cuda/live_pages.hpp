// Pages that the program and a running kernel use at once: flags, mailboxes, counters in mapped memory. Each side has a copy,
// and what either changes in its own is carried over to the other's, some thousand times a second (page_turns.hpp). What is
// carried are words of four bytes that differ from what both had before; so each word is to be written by one side at a time.
//
// A kernel that sees a flag must find the data that the program wrote before it, and the other way around:
// * The program can write one such page at a time. That makes its pages come over in the order in which it wrote them.
// * Of a page, the word that the program wrote first comes first, then those behind it, then those before it: a processor does
//   not tell the order, and the first is known from the access that was noticed.
// * The GPU's pages are looked at twice at least. What is shown has all that the GPU had written before the first look.
//
// Here is what is known of one range's pages. Nothing here knows of the network. Not for several threads at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <span>
#include <vector>

namespace tnr::cuda {

using PageBytes = std::vector<std::byte>;

struct ByteRun {
    size_t first = 0, count = 0;  // bytes
};
// The words that differ, as runs in the order in which they are carried over; `first`: the byte that was written first.
std::vector<ByteRun> changed_words(std::span<const std::byte> before, std::span<const std::byte> after, size_t first);

struct LivePage {
    PageBytes known;    // what the program had when its changes were last looked for
    PageBytes theirs;   // what the GPU had when it was last looked at, with what it has been sent since
    bool open = false;  // the program may write there
    size_t first_write = 0;
    std::chrono::steady_clock::time_point since;  // when the program has touched it

    // What is seen of the GPU's page now is the program's, which has `known` from then on. What the program has written and
    // the GPU not got yet stays.
    void take_in(const PageBytes& seen);
};
using LivePages = std::map<size_t, LivePage>;  // by page of the range

// Looks at one page of the GPU's, one after the other, until what they show can be shown to the program.
class Looks {
public:
    // `before`: what the GPU had before; empty if that is not known.
    explicit Looks(PageBytes before) : before_(std::move(before)) {}
    // False if something is new here that the last look did not have: what led up to it may not have been seen.
    bool add(PageBytes look);
    bool changed() const { return latest_ != before_; }
    // Of the last two looks.
    const PageBytes& seen() const { return seen_; }

private:
    PageBytes before_, latest_, seen_;
};

}  // namespace tnr::cuda
