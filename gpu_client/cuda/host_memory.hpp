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
// True for pinned memory at an address that a program may use as the device's (every address means the same to both).
bool is_pinned(uint64_t address);

// Copies to the GPU read the program's memory when they are called. What an earlier call has still to write there (when
// its stream gets so far) is noted here, so that they can wait for it.
class PendingWrite {
public:
    PendingWrite(const void* address, size_t bytes);
    ~PendingWrite();
    PendingWrite(const PendingWrite&) = delete;
    PendingWrite& operator=(const PendingWrite&) = delete;

private:
    uint64_t ticket_;
};
// Blocks until no pending write overlaps it, or the session is lost. Whoever ends a PendingWrite outside the receiving
// thread must poke() the session.
void await_writes(const void* address, size_t bytes);

}  // namespace tnr::cuda
