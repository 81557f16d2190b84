// From a device address to memory. Every access of every lane goes through here: a host pointer, or
// nullptr when the thread may not touch those bytes.
#pragma once

#include "gpu_server/emulated_gpu/ptx/builtin.hpp"
#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

// Which memory an instruction names. `frame`: the caller's or own parameters, by offset in the frame.
enum class Where : uint8_t { global, shared, shared32, local, frame, param, generic };

// Asks the launch's Memory and the device heap, and remembers the answer. nullptr: those bytes are not mapped.
const Memory::Range* find_global(Worker& worker, uint64_t address, uint32_t bytes);
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

inline const Memory::Range* global_range(Worker& worker, uint64_t address, uint32_t bytes) {
    for (auto& range : worker.ranges)
        if (within(range, address, bytes)) return &range;
    return find_global(worker, address, bytes);
}

inline std::byte* global_pointer(Worker& worker, uint64_t address, uint32_t bytes) {
    return global_range(worker, address, bytes) ? reinterpret_cast<std::byte*>(address) : nullptr;
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

// A stretch of addresses whose memory lies together: what all lanes' addresses can be checked against at once.
// Lane l's byte at address a is memory[a - begin + l * lane_stride].
struct Region {
    uint64_t begin = 0, bytes = 0;
    std::byte* memory = nullptr;
    uint64_t lane_stride = 0;  // of local memory
};

inline Region global_region(Worker& worker, uint64_t address, uint32_t bytes) {
    auto* range = global_range(worker, address, bytes);
    if (!range) return {};
    return {range->begin, range->end - range->begin, reinterpret_cast<std::byte*>(range->begin)};
}

Region parameter_region(Warp& w, uint64_t begin);

inline Region generic_region(Warp& w, uint64_t address, uint32_t bytes, bool writing) {
    switch (address & window_mask) {
        case 0:
            return global_region(*w.worker, address, bytes);
        case shared_window:
            return {shared_window, w.block->grid->shared_bytes, w.block->shared_base};
        case local_window:
            return {local_window, w.local_stride, w.local, w.local_stride};
        case param_window:
            return writing ? Region{} : parameter_region(w, param_window);
        default:
            return {};
    }
}

// The region in which `address` lies, or an empty one. Other blocks' shared memory has none.
template <Where W>
inline Region region_of(Warp& w, uint64_t address, uint32_t bytes, [[maybe_unused]] bool writing) {
    if constexpr (W == Where::global)
        return global_region(*w.worker, address, bytes);
    else if constexpr (W == Where::shared || W == Where::shared32)
        return {0, w.block->grid->shared_bytes, w.block->shared_base};
    else if constexpr (W == Where::local)
        return {0, w.local_stride, w.local, w.local_stride};
    else if constexpr (W == Where::frame)
        return {-w.frame->local_base, w.local_stride, w.local, w.local_stride};
    else if constexpr (W == Where::param)
        return parameter_region(w, 0);
    else
        return generic_region(w, address, bytes, writing);
}

template <Where W>
using AddressType = std::conditional_t<W == Where::shared32, uint32_t, uint64_t>;

}  // namespace tnr::ptx
