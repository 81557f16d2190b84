// What cuMulticastCreate returns: an address range whose every byte is memory on each device of a team.
//
// The idea: the object is a file, and memory that is bound to it moves into that file. So a process that has the file's
// descriptor has all that is bound, by whatever process. A page at the file's beginning says what is where; processes
// write to it without a lock (a place is taken by one atomic step), and nobody trusts what it says without a look at it.
#pragma once

#include <map>

#include "gpu_server/emulated_gpu/driver/physical_memory.hpp"
#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

namespace tnr::emulated {

// Both the minimum and what is recommended: one is as good as another here.
inline constexpr uint64_t multicast_granularity = physical_granularity;

bool has_multicast(const Device& device);

// Any thread. Where a process has two handles of one object (it has imported its own descriptor), each is one of these.
class Multicast : public Object {
public:
    static constexpr Kind kind_of = Kind::multicast;
    static constexpr unsigned devices_max = 32;  // of a team
    // Null if the system has no room.
    static std::shared_ptr<Multicast> create(unsigned devices, uint64_t bytes, bool shareable);
    // What export_file() gave. Null if it is anything else.
    static std::shared_ptr<Multicast> import(const UniqueFd& file);
    ~Multicast() override;  // unbinds what was bound by this handle

    bool shareable() const { return shareable_; }
    // A descriptor for another process; -1 unless the object was made for that.
    int export_file() const;
    // CUDA_ERROR_INVALID_VALUE for a device that is in the team, and for one too many.
    CUresult add(const Device& device);
    bool has(const Device& device) const { return place_of(device) >= 0; }
    // Blocks until all devices of the team have been added.
    void wait_for_team() const;

    // [memory_offset, memory_offset + size) of the memory becomes its device's part of the object; the team is complete.
    // `remap` is called when the memory has moved, before its old place is given up.
    CUresult bind(uint64_t offset, const std::shared_ptr<PhysicalMemory>& memory, uint64_t memory_offset, uint64_t size,
                  const std::function<void()>& remap) TNR_EXCLUDES(mutex_);
    // What was bound there with that size, by this handle.
    CUresult unbind(const Device& device, uint64_t offset, uint64_t size) TNR_EXCLUDES(mutex_);

    // The memory behind [offset, …): one copy per device, from range.begin on. Empty while a device has none there.
    ptx::Memory::Team copies_at(uint64_t offset) const TNR_EXCLUDES(mutex_);

    uint64_t bytes() const { return bytes_; }
    std::atomic<int> references{1};  // cuMulticastCreate, import and cuMemRetainAllocationHandle, less cuMemRelease

    struct Page;
    Multicast(UniqueFd file, Page* page);

private:
    struct Window {
        uint64_t serial = 0;  // of the binding: places are used again
        std::shared_ptr<std::byte> memory;
    };
    int place_of(const Device& device) const;
    std::shared_ptr<std::byte> window(size_t place, uint64_t serial, int64_t begin, uint64_t size) const
        TNR_REQUIRES(mutex_);

    const UniqueFd file_;
    Page* const page_;
    const uint64_t bytes_;    // what the page said when it was looked at
    const uint32_t devices_;  // likewise
    const bool shareable_;
    mutable Mutex mutex_;
    mutable std::map<size_t, Window> windows_ TNR_GUARDED_BY(mutex_);                 // by place in the page
    std::map<size_t, std::shared_ptr<PhysicalMemory>> bound_ TNR_GUARDED_BY(mutex_);  // by this handle
};

}  // namespace tnr::emulated
