// The page of memory that stands for an event of several processes (shared_events.hpp). The supervisor, which keeps it for
// them, writes to it when one of them has ended.
//
// Every recording has a number. It is complete when its word has that number or a larger one; words are taken in turn.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tnr::worker {

inline constexpr size_t event_page_bytes = 4096;

struct EventPage {
    static constexpr size_t words = event_page_bytes / 8 - 1;
    std::atomic<uint64_t> recorded;  // the newest recording's number; 0: never
    std::array<std::atomic<uint64_t>, words> completed;

    std::atomic<uint64_t>& word(uint64_t recording) { return completed[recording % words]; }
};
static_assert(sizeof(EventPage) == event_page_bytes);

}  // namespace tnr::worker
