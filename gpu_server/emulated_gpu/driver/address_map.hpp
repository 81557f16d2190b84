// Which addresses mean what. Device addresses are host addresses (the emulated GPU computes on the CPU), so
// one map for the whole process tells device memory, pinned host memory and nothing apart.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "api_client/base/mutex.hpp"

namespace tnr::emulated {

class Context;

enum class MemoryType : uint8_t {
    device,      // cuMemAlloc and the like
    mapped,      // cuMemMap
    multicast,   // the same, of a multicast object: no memory for anything but multimem
    managed,     // cuMemAllocManaged
    host,        // cuMemHostAlloc
    registered,  // cuMemHostRegister
};

struct Allocation {
    uint64_t begin = 0;
    uint64_t size = 0;  // as asked for; kernels may reach up to the end of the granule
    MemoryType type = MemoryType::device;
    int device = 0;              // whose memory it is; for host memory the device of its context
    Context* context = nullptr;  // who frees it when it is destroyed; null: outlives contexts
    uint64_t access = 0;         // one bit per device that cuMemSetAccess or cuMemPoolSetAccess has let use it
    uint64_t buffer_id = 0;      // unique for the life of the process
    uint64_t owner = 0;          // handle of the pool or the physical memory behind it; 0: none
    unsigned flags = 0;          // host: as given at allocation
    bool of_host = false;        // mapped: cuMemCreate made it in the host's memory
    bool in_module = false;      // a module's variable: cuMemFree refuses it
    bool in_graph = false;       // of a graph's node: see graph_memory.hpp
    bool freed = false;          // by a stream that has not got there yet
    bool sync_memops = false;    // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS

    uint64_t end() const { return begin + size; }
    bool is_host() const { return type == MemoryType::host || type == MemoryType::registered || of_host; }
};

// Thread-safe.
class AddressMap {
public:
    void insert(Allocation allocation);  // gives it its buffer_id
    // Takes out and returns the allocation that begins at `address`, if `accept` agrees.
    template <class Accept>
    std::optional<Allocation> take(uint64_t address, Accept&& accept) {
        ExclusiveLock lock(mutex_);
        auto found = allocations_.find(address);
        if (found == allocations_.end() || !accept(found->second)) return std::nullopt;
        Allocation taken = found->second;
        allocations_.erase(found);
        return taken;
    }
    std::optional<Allocation> find(uint64_t address) const;
    // Is every byte of [address, address + size) known? Neighbouring mappings count as one.
    bool covers(uint64_t address, uint64_t size) const;
    bool overlaps(uint64_t address, uint64_t size) const;
    // Calls `change` on what lies in the range (whole allocations only).
    template <class Change>
    void update(uint64_t address, uint64_t size, Change&& change) {
        ExclusiveLock lock(mutex_);
        for (auto it = allocations_.lower_bound(address); it != allocations_.end() && it->first < address + size; ++it)
            change(it->second);
    }
    std::vector<Allocation> of_context(const Context* context) const;

private:
    mutable SharedMutex mutex_;
    std::map<uint64_t, Allocation> allocations_ TNR_GUARDED_BY(mutex_);
    uint64_t next_buffer_id_ TNR_GUARDED_BY(mutex_) = 1;
};

}  // namespace tnr::emulated
