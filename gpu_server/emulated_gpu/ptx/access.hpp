// From a device address to memory. Every access of every lane goes through here: a host pointer, or
// nullptr when the thread may not touch those bytes.
#pragma once

#include "gpu_server/emulated_gpu/ptx/builtin.hpp"
#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

// Which memory an instruction names. `frame`: the caller's or own parameters, by offset in the frame.
enum class Where : uint8_t { global, shared, shared32, local, frame, param, generic };

// Asks the launch's Memory and the device heap, and remembers the answer.
std::byte* find_global(Worker& worker, uint64_t address, uint32_t bytes);
void memory_fault(Warp& warp, uint64_t address, uint32_t lane, uint32_t bytes, const char* what, bool misaligned);

inline bool within(const Memory::Range& range, uint64_t address, uint32_t bytes) {
    return address - range.begin < range.end - range.begin && range.end - address >= bytes;
}

// Forgets remembered ranges after memory was unmapped. Called once per memory instruction.
inline void refresh_ranges(Worker& worker) {
    auto generation =
        worker.grid->launch->memory ? worker.grid->launch->memory->generation.load(std::memory_order_acquire) : 0;
    auto heap = DeviceHeap::instance().generation();
    if (generation == worker.generation && heap == worker.heap_generation) return;
    for (auto& range : worker.ranges) range = {};
    worker.generation = generation;
    worker.heap_generation = heap;
}

inline std::byte* global_pointer(Worker& worker, uint64_t address, uint32_t bytes) {
    for (auto& range : worker.ranges)
        if (within(range, address, bytes)) return reinterpret_cast<std::byte*>(address);
    return find_global(worker, address, bytes);
}

std::byte* peer_pointer(const Warp& w, uint64_t address, uint32_t bytes);  // another block's, or nullptr

inline std::byte* shared_pointer(Warp& w, uint64_t address, uint32_t bytes) {
    uint64_t size = w.block->grid->shared_bytes;
    if (address < size && size - address >= bytes) return w.block->shared_base + address;
    return address >> block_shift ? peer_pointer(w, address, bytes) : nullptr;
}

inline std::byte* local_pointer(Warp& w, uint32_t lane, uint64_t address, uint32_t bytes) {
    bool inside = address < w.local_stride && w.local_stride - address >= bytes;
    return inside ? w.local + lane * w.local_stride + address : nullptr;
}

// Parameters are read only; st never gets here (the decoder refuses it), generic stores check `writing`.
std::byte* param_pointer(Warp& w, uint64_t address, uint32_t bytes);

inline std::byte* generic_pointer(Warp& w, uint32_t lane, uint64_t address, uint32_t bytes, bool writing) {
    switch (address & window_mask) {
        case 0:
            return global_pointer(*w.worker, address, bytes);
        case shared_window:
            return shared_pointer(w, address & ~window_mask, bytes);
        case local_window:
            return local_pointer(w, lane, address & ~window_mask, bytes);
        case param_window:
            return writing ? nullptr : param_pointer(w, address & ~window_mask, bytes);
        default:
            return nullptr;
    }
}

template <Where W>
inline std::byte* pointer(Warp& w, uint32_t lane, uint64_t address, uint32_t bytes, bool writing = false) {
    if constexpr (W == Where::global)
        return global_pointer(*w.worker, address, bytes);
    else if constexpr (W == Where::shared || W == Where::shared32)
        return shared_pointer(w, address, bytes);
    else if constexpr (W == Where::local)
        return local_pointer(w, lane, address, bytes);
    else if constexpr (W == Where::frame)
        return local_pointer(w, lane, w.frame->local_base + address, bytes);
    else if constexpr (W == Where::param)
        return param_pointer(w, address, bytes);
    else
        return generic_pointer(w, lane, address, bytes, writing);
}

template <Where W>
using AddressType = std::conditional_t<W == Where::shared32, uint32_t, uint64_t>;

}  // namespace tnr::ptx
