// One device's memory as this process sees it: the session's range of addresses, of which allocations are carved, and
// the grant of physical memory that backs them.
//
// Nothing here waits for the network while there is grant left: an address is chosen here, and the record that backs it
// with memory travels in order with everything else. What is freed is quarantined until the GPU is known to be past
// every command that was given before, since it may still be used by them.
//
// Small allocations share mapped blocks, large ones have mappings of their own. Any thread.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/memory_ranges.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/cuda/session.hpp"

namespace tnr::cuda {

struct Device;

struct Allocation {
    uint64_t address = 0;
    uint64_t bytes = 0;              // as the program asked
    uint64_t reserved = 0;           // as carved
    bool small = false;              // in a shared block
    bool mapped_by_program = false;  // through the virtual memory API: not ours to free
    uint64_t context = 0;            // handle
    uint64_t id = 0;                 // CU_POINTER_ATTRIBUTE_BUFFER_ID
    uint64_t pool = 0;               // memory pool it came from, if any
};

class DeviceMemory {
public:
    explicit DeviceMemory(const Device& device) : device_(device) {}

    void take_range(uint64_t address, uint64_t bytes, uint64_t granularity);
    // Asks for the first grant without waiting: it is here when the program first allocates.
    void ask_ahead();

    // `stream` + 1 for a stream-ordered allocation (0: not): memory freed in the same stream may be reused at once.
    CUresult allocate(const Context& context, uint64_t bytes, uint64_t stream, uint64_t pool, uint64_t& address);
    CUresult release(uint64_t address, uint64_t stream);

    bool in_range(uint64_t address) const { return address - range_address_ < range_bytes_; }
    // The allocation that contains the address.
    bool find(uint64_t address, Allocation& found) const;
    bool holds_any(uint64_t context) const;
    // Memory of ours that is mapped but free to allocate: the driver counts it as used.
    uint64_t mapped_free_bytes() const;
    uint64_t granularity() const { return granularity_; }

    // The GPU has finished all that was sent up to `position` in the context (or in one stream of it).
    void context_synced(uint64_t context, uint64_t position);
    void stream_synced(uint64_t stream, uint64_t position);
    void context_ends(uint64_t context);
    void trim();  // unmaps what is free

    // The program's own use of the range: addresses without memory, and mappings it made.
    uint64_t reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted);
    void unreserve(uint64_t address, uint64_t bytes);
    void note_mapping(uint64_t address, uint64_t bytes, uint64_t context);
    void forget_mapping(uint64_t address, uint64_t bytes);
    uint64_t next_id() { return ++last_id_; }

private:
    struct Freed {
        Allocation allocation;
        uint64_t position;
        uint64_t stream;
    };
    struct Mapped {
        uint64_t address, bytes;
    };
    using Lock = std::unique_lock<std::mutex>;

    bool try_allocate(Lock& lock, const Context& context, uint64_t bytes, uint64_t stream, Allocation& made);
    bool take_freed_in_stream(const Context& context, uint64_t bytes, uint64_t stream, Allocation& made);
    bool take_small(uint64_t bytes, Allocation& made);
    bool take_mapped(uint64_t bytes, Allocation& made);
    uint64_t map(uint64_t bytes);
    void unmap(const Mapped& range);
    bool make_space(Lock& lock, uint64_t needed);
    bool take_ahead();
    bool ask_for(uint64_t bytes);
    bool force_sync(Lock& lock);
    void give_back(const Allocation& allocation);
    uint64_t quarantined_bytes() const;
    template <class Past>
    void leave_quarantine(Past&& past);

    const Device& device_;
    uint64_t range_address_ = 0, range_bytes_ = 0, granularity_ = 2 << 20;

    mutable std::mutex mutex_;  // guards the rest; may be held while a full session makes us wait
    RangeAllocator space_;      // addresses without memory
    RangeAllocator small_;      // free parts of shared blocks
    std::vector<Mapped> blocks_;
    std::vector<Mapped> spare_;  // mapped, unused, each as it was mapped
    std::map<uint64_t, Allocation> allocations_;
    std::vector<Freed> quarantine_;
    uint64_t granted_ = 0, mapped_ = 0;
    std::atomic<uint64_t> last_id_{0};

    struct Ahead {
        Pending pending;
        std::byte payload[20];
    };
    std::atomic<bool> ahead_asked_{false}, ahead_done_{false};
    std::atomic<uint64_t> ahead_granted_{0};
};

}  // namespace tnr::cuda
