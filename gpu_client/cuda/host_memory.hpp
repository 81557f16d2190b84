// The program's pinned memory: allocated or registered through us. Copies from it may still be travelling when the call
// that started them has returned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

struct PinnedRange {
    uint64_t address = 0;
    uint64_t bytes = 0;
    unsigned flags = 0;
    bool registered = false;  // the memory is the program's own
    uint64_t context = 0;     // handle of the context it was made in
    uint64_t id = 0;
    std::atomic<int>* in_flight = nullptr;  // copies that still read or write it; shared with them, never freed
    uint64_t pool = 0;                      // handle of the pool it was taken from (host_pools.hpp)
};

// Behind cuMemHostAlloc and cuMemFreeHost, which waits for work on the memory. False: no such memory was allocated.
CUresult allocate_pinned(void** out, size_t bytes, unsigned flags, uint64_t pool = 0);
bool free_pinned(void* memory);
// The context is about to end, and with it what it has pinned, pools' memory aside: allocated memory is freed, registered
// memory is the program's alone again, with what the GPU has left in it.
void unpin_memory_of(const Context& context);

// Finds the pinned range that covers all of the memory; false if there is none.
bool find_pinned(const void* address, size_t bytes, PinnedRange& range);
// True if the address is in pinned memory. A program may use it as a device address, too: addresses are unified.
bool is_pinned(uint64_t address);
// True if pinned memory begins there and not all of the bytes are of one range. Who names such memory as the device's gets
// no more than that.
bool leaves_pinned(uint64_t address, size_t bytes);
// True if some of the bytes are pinned and others are not. Copies of such memory are refused: cuda.h wants all of it
// registered, or nothing. Registered ranges that lie behind each other count as one.
bool is_pinned_in_part(const void* address, uint64_t bytes);

// Pinned memory that the GPU has under another address, or not at all, is all in here. Empty where there is none.
struct AddressSpan {
    uint64_t first, behind;
};
AddressSpan addresses_elsewhere();
// Where a device's kernels find the pinned memory of the program that is at this address. Waits while it is given to them,
// if it is not yet. Fails with CUDA_ERROR_INVALID_VALUE if this is no pinned memory, or CUDA_ERROR_OUT_OF_MEMORY.
CUresult find_elsewhere(Context& context, uint64_t address, uint64_t& device);

// Memory that an earlier call has yet to write, when its stream gets there. Copies to the GPU read the program's memory
// at the time of the call, so they wait for such writes.
class PendingWrite {
public:
    PendingWrite(const void* address, size_t bytes);
    ~PendingWrite();
    PendingWrite(const PendingWrite&) = delete;
    PendingWrite& operator=(const PendingWrite&) = delete;

private:
    uint64_t ticket_;
};
// Blocks until no pending write overlaps the memory, or the session is lost. Code that ends a PendingWrite outside the
// receiving thread must poke() the session.
void await_writes(const void* address, size_t bytes);

}  // namespace tnr::cuda
