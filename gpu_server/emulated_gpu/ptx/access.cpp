// The slow ways: see access.hpp.
#include "gpu_server/emulated_gpu/ptx/access.hpp"

#include <cstdio>

namespace tnr::ptx {

std::byte* peer_pointer(const Warp& w, uint64_t address, uint32_t bytes) {
    uint64_t rank = (address >> block_shift) - 1, size = w.block->grid->shared_bytes;
    uint64_t offset = address & ((uint64_t{1} << block_shift) - 1);
    auto& cluster = *w.block->cluster;
    auto* peer = rank < cluster.size() ? cluster[rank] : nullptr;
    return peer && offset < size && size - offset >= bytes ? peer->shared_base + offset : nullptr;
}

const Memory::Range* find_global(Worker& worker, uint64_t address, uint32_t bytes) {
    auto remember = [&](const Memory::Range& range) {
        auto& place = worker.ranges[worker.next_range++ % Worker::ranges_max];
        place = range;
        return &place;
    };
    if (auto* memory = worker.grid->launch->memory) {
        auto range = memory->range_of(address);
        if (within(range, address, bytes)) return remember(range);
    }
    auto workspace = reinterpret_cast<uint64_t>(worker.grid->workspace);
    Memory::Range own{workspace, workspace + sizeof worker.grid->workspace};
    if (within(own, address, bytes)) return remember(own);
    auto heap = DeviceHeap::instance().range_of(address);
    return within(heap, address, bytes) ? remember(heap) : nullptr;
}

std::byte* param_pointer(Warp& w, uint64_t address, uint32_t bytes) {
    auto parameters = w.block->grid->launch->parameters;
    if (address >= parameters.size() || parameters.size() - address < bytes) return nullptr;
    return const_cast<std::byte*>(parameters.data()) + address;
}

Region parameter_region(Warp& w, uint64_t begin) {
    auto parameters = w.block->grid->launch->parameters;
    return {begin, parameters.size(), const_cast<std::byte*>(parameters.data())};
}

void memory_fault(Warp& w, uint64_t address, uint32_t lane, uint32_t bytes, const char* what, bool misaligned) {
    char text[96];
    std::snprintf(text, sizeof text, "%s%s of %u bytes at 0x%llx", misaligned ? "misaligned " : "", what, bytes,
                  static_cast<unsigned long long>(address));
    fault(w, misaligned ? Outcome::misaligned_address : Outcome::illegal_address, lane, text);
}

}  // namespace tnr::ptx
