// Handles that the client mints. A handle's value names kind, generation and slot, so looking one up is two loads and
// a comparison, without a lock; a destroyed or made-up handle is recognised instead of followed.
//
// Objects live in slots that are reused but never freed: a thread that races with a destroy (the program's bug) may see
// an old object, never freed memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>

#include "api_client/base/mutex.hpp"

namespace tnr::cuda {

enum class HandleKind : uint64_t {
    context = 1,
    stream,
    event,
    library,
    function,
    pool,
    allocation,
    link,
    graph,
    graph_node,
    graph_exec,
    user_object,
    array,
    mipmapped_array,
    texture_reference,
    surface_reference,
    green_context,
    converted_context,
    resource_description
};

inline constexpr unsigned slot_bits = 24;        // objects of one kind at a time: 16 million
inline constexpr unsigned generation_bits = 12;  // uses of a slot before its handles repeat
inline constexpr unsigned handle_shift = 4;      // handles are multiples of 16, like the pointers they stand for

constexpr HandleKind kind_of_handle(uint64_t handle) {
    return static_cast<HandleKind>(handle >> (handle_shift + slot_bits + generation_bits));
}

template <class T, HandleKind Kind>
class HandleRegistry {
public:
    // `fill(object, index, handle)` prepares the object before anyone can find it.
    template <class Fill>
    uint64_t create(Fill&& fill) {
        LockGuard lock(mutex_);
        uint64_t index = take_slot();
        auto& slot = *slot_at(index);
        uint64_t generation = (slot.generation++) & ((uint64_t{1} << generation_bits) - 1);
        uint64_t handle = encode(index, generation);
        fill(slot.object, index, handle);
        slot.handle.store(handle, std::memory_order_release);
        return handle;
    }
    // Null when no such object lives.
    T* find(uint64_t handle) const {
        uint64_t value = handle >> handle_shift;
        uint64_t index = value & (slots_max - 1);
        auto* chunk = chunks_[index / chunk_slots].load(std::memory_order_acquire);
        if (!chunk) return nullptr;
        auto& slot = chunk[index % chunk_slots];
        bool lives = handle != 0 && slot.handle.load(std::memory_order_acquire) == handle;
        return lives ? &slot.object : nullptr;
    }
    // The object in a slot; null when none lives there.
    T* at(uint64_t index) const {
        if (index >= slots_max) return nullptr;
        auto* chunk = chunks_[index / chunk_slots].load(std::memory_order_acquire);
        if (!chunk) return nullptr;
        auto& slot = chunk[index % chunk_slots];
        return slot.handle.load(std::memory_order_acquire) != 0 ? &slot.object : nullptr;
    }
    // Only one of several racing threads gets true.
    bool destroy(uint64_t handle) {
        auto* object = find(handle);
        if (!object) return false;
        uint64_t index = (handle >> handle_shift) & (slots_max - 1);
        if (!slot_at(index)->handle.compare_exchange_strong(handle, 0)) return false;
        LockGuard lock(mutex_);
        free_.push_back(index);
        return true;
    }
    // Every live object; objects created meanwhile may be missed.
    template <class Visit>
    void each(Visit&& visit) {
        uint64_t end;
        {
            LockGuard lock(mutex_);
            end = next_;
        }
        for (uint64_t index = 0; index < end; ++index) {
            auto& slot = *slot_at(index);
            if (uint64_t handle = slot.handle.load(std::memory_order_acquire)) visit(slot.object, handle);
        }
    }

private:
    struct Slot {
        std::atomic<uint64_t> handle{0};  // 0: free
        uint64_t generation = 0;
        T object{};
    };
    static constexpr uint64_t slots_max = uint64_t{1} << slot_bits;
    static constexpr uint64_t chunk_slots = 1024;

    static uint64_t encode(uint64_t index, uint64_t generation) {
        auto kind = static_cast<uint64_t>(Kind);
        return ((kind << generation_bits | generation) << slot_bits | index) << handle_shift;
    }
    Slot* slot_at(uint64_t index) const {
        return &chunks_[index / chunk_slots].load(std::memory_order_acquire)[index % chunk_slots];
    }
    uint64_t take_slot() TNR_REQUIRES(mutex_) {
        if (!free_.empty()) {
            uint64_t index = free_.front();  // free for longest, so its old handles have been stale for longest
            free_.pop_front();
            return index;
        }
        if (next_ == slots_max) throw std::bad_alloc();
        auto& chunk = chunks_[next_ / chunk_slots];
        if (!chunk.load(std::memory_order_relaxed)) chunk.store(new Slot[chunk_slots], std::memory_order_release);
        return next_++;
    }

    mutable Mutex mutex_;
    std::deque<uint64_t> free_ TNR_GUARDED_BY(mutex_);
    uint64_t next_ TNR_GUARDED_BY(mutex_) = 0;
    std::atomic<Slot*> chunks_[slots_max / chunk_slots] = {};
};

}  // namespace tnr::cuda
