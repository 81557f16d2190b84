// The program's pinned memory: allocated or registered through us. Copies from it may still be travelling when the call
// that started them has returned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tnr::cuda {

struct PinnedRange {
    uint64_t address = 0;
    uint64_t bytes = 0;
    unsigned flags = 0;
    bool registered = false;  // the memory is the program's own
    uint64_t context = 0;     // handle of the context it was made in
    uint64_t id = 0;
    std::atomic<int>* in_flight = nullptr;  // copies that still read or write it; shared with them, never freed
};

// The pinned range that covers all of it.
bool find_pinned(const void* address, size_t bytes, PinnedRange& range);

}  // namespace tnr::cuda
