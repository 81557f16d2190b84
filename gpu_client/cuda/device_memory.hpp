// One device's memory as this process sees it: the session's range of addresses, from which allocations are carved, and
// the grant of physical memory that backs them.
//
// While grant is left, nothing here waits for the network: the address is chosen here, and the record that maps memory
// there travels in order with all others. Freed memory is quarantined until the GPU is known to have passed every
// command sent before, since those may still use it; memory that no command can have touched is free at once. When much
// is in quarantine, the GPU is asked how far it is, without waiting for the answer.
//
// Small allocations share mapped blocks, large ones have mappings of their own. Any thread. Callers must hold no lock
// where a function may wait.
//
// device_memory.cpp chooses places for allocations, memory_room.cpp comes by the room for them.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/client_session.hpp"
#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/memory_ranges.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/cuda/ordered_sends.hpp"
#include "gpu_client/cuda/quarantine.hpp"

namespace tnr::cuda {

struct Device;

class DeviceMemory {
public:
    // Allocations are multiples of this: what cuMemAlloc promises of alignment, and then some.
    static constexpr uint64_t small_unit = 512;

    // `synchronize` waits for a context's work, then calls context_synced().
    DeviceMemory(Device& device, CUresult (*synchronize)(Context&))
        : device_(device), synchronize_(synchronize), sends_(device) {}

    void take_range(uint64_t address, uint64_t bytes, uint64_t granularity);
    // Asks for the first grant without waiting, so that it is here by the program's first allocation.
    void ask_ahead();

    // `stream`: the stream's number + 1 for a stream-ordered allocation, which may reuse memory freed in the same
    // stream at once; 0 for any other. Waits only when the grant or the addresses are used up.
    // The memory has a multiple of `alignment` (a power of two, at most the granularity) all to itself.
    CUresult allocate(const Context& context, uint64_t bytes, uint64_t stream, uint64_t pool, uint64_t& address,
                      uint64_t alignment = small_unit);
    // Never waits for the GPU. `id`: only the allocation with this id (0: whichever begins there).
    CUresult release(uint64_t address, uint64_t stream, uint64_t id = 0);
    // Physical memory that the program creates itself (cuMemCreate) comes out of the same grant. take_grant() waits as
    // allocate() does.
    CUresult take_grant(uint64_t bytes);
    void return_grant(uint64_t bytes);
    // Another process wants as much: gives back what of the grant is not used, and says so. May wait for the GPU.
    void give_up_idle(uint64_t wanted) TNR_EXCLUDES(mutex_);
    // Graphs have taken memory out of it, or given it back (less than 0), and the worker was granted more for that.
    void graphs_took(int64_t bytes, uint64_t granted) TNR_EXCLUDES(mutex_);

    bool in_range(uint64_t address) const { return address - range_address_ < range_bytes_; }
    // The allocation that contains the address.
    bool find(uint64_t address, Allocation& found) const;
    void set_sync_memops(uint64_t address, bool on);  // of the allocation that begins there
    bool holds_any(uint64_t context) const;
    // `backed`: what the driver counts as used because of us. `free`: how much of that could still be allocated. On
    // return, all mappings and unmappings decided so far are in the session's stream.
    struct Usage {
        uint64_t backed = 0;
        uint64_t free = 0;
    };
    Usage usage();
    // The part of the grant that backs no allocation of the program.
    uint64_t idle_grant() const;
    uint64_t granularity() const { return granularity_; }

    // The GPU has finished everything sent up to `position` in the context (or in one of its streams).
    void context_synced(uint64_t context, uint64_t position);
    void stream_synced(uint64_t stream, uint64_t position);
    // Gives back the context's memory, but for what came from pools: that is the heir's, which may be the context itself.
    // Waits for a pending question about the context, since nothing may name it afterwards.
    void context_ends(uint64_t context, uint64_t heir);
    void trim();  // unmaps what is free
    // The same, unless the GPU may be at work: drivers wait for that when they unmap, and it may wait for the program.
    void trim_if_idle() TNR_EXCLUDES(mutex_);
    // Of the pool with this handle; freed by the program in a stream that is not known to be through.
    uint64_t freed_bytes(uint64_t pool) const TNR_EXCLUDES(mutex_);
    void trim_after_work() TNR_EXCLUDES(mutex_);  // and what was freed, once the GPU has passed it
    // From now on commands of `device` may use this memory, too, so freed memory waits for them as well.
    void reached_from(int device) { reached_from_.fetch_or(uint64_t{1} << device); }

    // The program's own use of the range: addresses without memory, and mappings it made.
    uint64_t reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted);
    void unreserve(uint64_t address, uint64_t bytes);
    void note_mapping(uint64_t address, uint64_t bytes, uint64_t context, uint64_t open_to);
    void forget_mapping(uint64_t address, uint64_t bytes);
    OrderedSends& sends() { return sends_; }
    uint64_t next_id() { return ++last_id_; }

private:
    struct Mapped {
        uint64_t address, bytes;
    };
    struct Wish {
        const Context& context;
        uint64_t bytes, stream, pool, alignment;
    };
    struct Drain;

    ClientSession& session() const;  // open once there is memory to ask for
    uint64_t whole_granules(uint64_t bytes) const { return (bytes + granularity_ - 1) / granularity_ * granularity_; }
    // These put what must be sent into sends_.
    bool try_allocate(const Wish& wish, Allocation& made) TNR_REQUIRES(mutex_);
    bool find_place(const Wish& wish, Allocation& made) TNR_REQUIRES(mutex_);
    bool take_small(uint64_t bytes, uint64_t alignment, Allocation& made) TNR_REQUIRES(mutex_);
    bool take_mapped(uint64_t bytes, Allocation& made) TNR_REQUIRES(mutex_);
    uint64_t map(uint64_t bytes) TNR_REQUIRES(mutex_);
    void unmap(const Mapped& range) TNR_REQUIRES(mutex_);
    void unmap_spares() TNR_REQUIRES(mutex_);
    // Graphs may have taken what we have mapped since: the worker then asks for more.
    uint64_t room() const TNR_REQUIRES(mutex_) { return granted_ - std::min(granted_, mapped_ + created_); }
    void give_back(const Allocation& allocation) TNR_REQUIRES(mutex_);
    void leave_quarantine() TNR_REQUIRES(mutex_);
    uint64_t passed_by_others() const;
    bool drain_is_due() const TNR_REQUIRES(mutex_);

    // These may wait, so no lock may be held.
    void note_untouched(uint64_t address) TNR_EXCLUDES(mutex_);
    bool make_space(uint64_t needed, uint64_t more_room) TNR_EXCLUDES(mutex_);
    bool use_spares(uint64_t needed) TNR_EXCLUDES(mutex_);
    bool take_ahead() TNR_EXCLUDES(mutex_);
    bool ask_for(uint64_t bytes) TNR_EXCLUDES(mutex_);
    bool force_sync() TNR_EXCLUDES(mutex_);
    void drain(uint64_t context) TNR_EXCLUDES(mutex_);

    Device& device_;
    CUresult (*const synchronize_)(Context&);
    // Set by take_range() before anything else is called.
    uint64_t range_address_ = 0, range_bytes_ = 0, granularity_ = 2 << 20;
    OrderedSends sends_;
    std::atomic<uint64_t> reached_from_{0};  // bit per device
    std::atomic<uint64_t> last_id_{0};

    mutable Mutex mutex_;                          // nothing is sent while it is held
    RangeAllocator space_ TNR_GUARDED_BY(mutex_);  // addresses without memory
    RangeAllocator small_ TNR_GUARDED_BY(mutex_);  // free parts of shared blocks
    std::vector<Mapped> blocks_ TNR_GUARDED_BY(mutex_);
    std::vector<Mapped> spare_ TNR_GUARDED_BY(mutex_);  // mapped, unused, each as it was mapped
    uint64_t spare_bytes_ TNR_GUARDED_BY(mutex_) = 0;
    std::map<uint64_t, Allocation> allocations_ TNR_GUARDED_BY(mutex_);
    Quarantine quarantine_ TNR_GUARDED_BY(mutex_);
    uint64_t granted_ TNR_GUARDED_BY(mutex_) = 0;
    uint64_t mapped_ TNR_GUARDED_BY(mutex_) = 0;
    uint64_t created_ TNR_GUARDED_BY(mutex_) = 0;
    uint64_t more_room_ TNR_GUARDED_BY(mutex_) = 0;      // how often memory was given back, or granted
    uint64_t drained_bytes_ TNR_GUARDED_BY(mutex_) = 0;  // quarantined when the GPU was asked last

    std::atomic<uint64_t> draining_{0};  // the context that is being asked how far it is; 0: none

    struct Ahead {
        Pending pending;
        wire::Bytes question;
    };
    std::atomic<bool> ahead_asked_{false}, ahead_done_{false};
    std::atomic<uint64_t> ahead_granted_{0};
};

}  // namespace tnr::cuda
