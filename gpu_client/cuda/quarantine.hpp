// Memory that the program has freed but that earlier commands may still use on the GPU. It leaves when the GPU is known
// to have passed them. The caller's lock guards it all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tnr::cuda {

struct Allocation {
    uint64_t address = 0;
    uint64_t bytes = 0;              // as the program asked
    uint64_t reserved = 0;           // as carved
    bool small = false;              // in a shared block
    bool mapped_by_program = false;  // through the virtual memory API: not ours to free
    bool sync_memops = false;        // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    uint64_t context = 0;            // handle
    uint64_t id = 0;                 // CU_POINTER_ATTRIBUTE_BUFFER_ID
    uint64_t pool = 0;               // memory pool it came from, if any
    uint64_t open_to = 0;            // bit per device: who may use it by itself
    uint64_t untouched_at = 0;       // the stream's position when it was allocated; 0: earlier commands may use it
};

class Quarantine {
public:
    // The memory was freed when the session's stream was at `position`, in order with stream number `stream` - 1 (0:
    // with all).
    void add(const Allocation& allocation, uint64_t position, uint64_t stream) {
        freed_.push_back({allocation, position, stream, false});
        bytes_ += allocation.reserved;
    }
    bool empty() const { return freed_.empty(); }
    size_t size() const { return freed_.size(); }
    uint64_t bytes() const { return bytes_; }
    // Of a pool, and freed in a stream that may be at work: at_work(context, stream) with the stream as in add().
    template <class AtWork>
    uint64_t bytes_of_pool(uint64_t pool, AtWork&& at_work) const {
        uint64_t bytes = 0;
        for (auto& [allocation, position, stream, passed] : freed_)
            if (allocation.pool == pool && !passed && at_work(allocation.context, stream)) bytes += allocation.bytes;
        return bytes;
    }
    bool holds_any(uint64_t context) const {
        return std::any_of(freed_.begin(), freed_.end(), [&](auto& one) { return one.allocation.context == context; });
    }
    std::vector<uint64_t> contexts() const {
        std::vector<uint64_t> found;
        for (auto& one : freed_)
            if (std::find(found.begin(), found.end(), one.allocation.context) == found.end())
                found.push_back(one.allocation.context);
        return found;
    }

    // Takes memory that was freed in the same stream, where it may be reused at once. False if there is none of that
    // size.
    bool take_in_stream(uint64_t context, uint64_t stream, uint64_t bytes, uint64_t bytes_max, Allocation& taken) {
        auto fits = [&](const Freed& one) {
            return one.stream == stream && one.allocation.context == context && one.allocation.reserved >= bytes &&
                   one.allocation.reserved <= bytes_max;
        };
        auto found = std::find_if(freed_.begin(), freed_.end(), fits);
        if (found == freed_.end()) return false;
        taken = found->allocation;
        bytes_ -= taken.reserved;
        freed_.erase(found);
        return true;
    }

    // The GPU has passed everything sent up to `position` in the context, or in one stream.
    void context_passed(uint64_t context, uint64_t position) {
        for (auto& one : freed_) one.passed |= one.allocation.context == context && one.position <= position;
    }
    void stream_passed(uint64_t stream, uint64_t position) {
        for (auto& one : freed_) one.passed |= one.stream == stream + 1 && one.position <= position;
    }
    // Removes what its own context or stream has passed, as far as all others have passed it, too (up to
    // `others_passed`).
    std::vector<Allocation> leave(uint64_t others_passed) {
        return leave_if([&](auto& one) { return one.passed && one.position <= others_passed; });
    }
    // The context has ended, and its work with it.
    std::vector<Allocation> leave_with(uint64_t context) {
        return leave_if([&](auto& one) { return one.allocation.context == context; });
    }

private:
    struct Freed {
        Allocation allocation;
        uint64_t position;
        uint64_t stream;
        bool passed;  // by its own context or stream
    };
    template <class May>
    std::vector<Allocation> leave_if(May&& may) {
        auto first = std::stable_partition(freed_.begin(), freed_.end(), [&](auto& one) { return !may(one); });
        std::vector<Allocation> left;
        for (auto one = first; one != freed_.end(); ++one) {
            bytes_ -= one->allocation.reserved;
            left.push_back(one->allocation);
        }
        freed_.erase(first, freed_.end());
        return left;
    }

    std::vector<Freed> freed_;
    uint64_t bytes_ = 0;
};

}  // namespace tnr::cuda
