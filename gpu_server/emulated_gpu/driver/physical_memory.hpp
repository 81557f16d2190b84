// What cuMemCreate returns: memory that has no address yet, and that other processes can be given.
#pragma once

#include <functional>

#include "api_client/base/handles.hpp"
#include "gpu_server/emulated_gpu/driver/memory.hpp"

namespace tnr::emulated {

// The driver's granularity on every GPU of the last ten years.
inline constexpr uint64_t physical_granularity = uint64_t{2} << 20;

// Each mapping holds a reference, so the memory lives until it is both released and unmapped (and, where other
// processes have it, until they are done with it, too).
class PhysicalMemory : public Object {
public:
    static constexpr Kind kind_of = Kind::physical_memory;
    // Memory that may be given to other processes is a file of its own; all other memory is a stretch of one file,
    // never used again: a file can be 8 EiB long, so releasing memory is punching a hole. Where the GPU has a file
    // (device_file.hpp), all is a stretch of that. Null if the system has no room.
    static std::shared_ptr<PhysicalMemory> create(Device& device, uint64_t bytes,
                                                  const CUmemAllocationProp& properties);
    // What export_file() of another process gave. Null if it is anything else.
    static std::shared_ptr<PhysicalMemory> import(UniqueFd file);
    PhysicalMemory(Device& owner, uint64_t size, const CUmemAllocationProp& given)
        : Object(kind_of), device(owner), bytes(size), properties(given) {}
    // Another process's.
    PhysicalMemory(Device& owner, uint64_t size, UniqueFd imported, int64_t offset);
    ~PhysicalMemory() override;

    // A descriptor for another process; -1 if this memory has no file of its own.
    int export_file();
    // Takes the content to another file, and calls `remap` before the old place is given up. CUDA_ERROR_NOT_SUPPORTED
    // for memory that other processes have, and for what has moved before.
    CUresult move_to(int file, int64_t begin, const std::function<void()>& remap);
    bool moved() const { return moved_; }
    // Where this process has all of it at once, for what reaches it by no address of the device: tiles of arrays. Null if there
    // is no room.
    std::byte* window();
    int fd() const;  // to be mapped from `offset` on
    int64_t offset() const { return offset_; }

    Device& device;
    const uint64_t bytes;
    const CUmemAllocationProp properties;
    std::atomic<int> references{1};  // cuMemCreate and cuMemRetainAllocationHandle, less cuMemRelease

private:
    tnr::Mutex window_mutex_;
    std::byte* window_ TNR_GUARDED_BY(window_mutex_) = nullptr;
    UniqueFd own_;
    int64_t offset_ = 0;
    bool imported_ = false;  // charged where it was made
    std::atomic<bool> exported_{false}, moved_{false};
};

}  // namespace tnr::emulated
