// See memory_ranges.hpp.
#include "gpu_client/cuda/memory_ranges.hpp"

#include <iterator>

namespace tnr::cuda {

void RangeAllocator::insert(uint64_t address, uint64_t bytes) {
    if (bytes == 0) return;
    by_address_[address] = bytes;
    by_size_.insert({bytes, address});
    free_bytes_ += bytes;
}

void RangeAllocator::remove(std::map<uint64_t, uint64_t>::iterator piece) {
    by_size_.erase({piece->second, piece->first});
    free_bytes_ -= piece->second;
    by_address_.erase(piece);
}

void RangeAllocator::add(uint64_t address, uint64_t bytes) {
    auto after = by_address_.lower_bound(address);
    if (after != by_address_.end() && after->first == address + bytes) {
        bytes += after->second;
        auto next = std::next(after);
        remove(after);
        after = next;
    }
    if (after != by_address_.begin()) {
        auto before = std::prev(after);
        if (before->first + before->second == address) {
            address = before->first;
            bytes += before->second;
            remove(before);
        }
    }
    insert(address, bytes);
}

// Takes [address, address + bytes) out of the free piece that contains it.
void RangeAllocator::cut(std::map<uint64_t, uint64_t>::iterator piece, uint64_t address, uint64_t bytes) {
    uint64_t start = piece->first, end = piece->first + piece->second;
    remove(piece);
    insert(start, address - start);
    insert(address + bytes, end - address - bytes);
}

uint64_t RangeAllocator::take(uint64_t bytes, uint64_t alignment) {
    for (auto fit = by_size_.lower_bound({bytes, 0}); fit != by_size_.end(); ++fit) {
        auto [size, start] = *fit;
        uint64_t address = (start + alignment - 1) & ~(alignment - 1);
        if (address < start || address - start > size - bytes) continue;
        cut(by_address_.find(start), address, bytes);
        return address;
    }
    return 0;
}

bool RangeAllocator::take_at(uint64_t address, uint64_t bytes) {
    auto after = by_address_.upper_bound(address);
    if (after == by_address_.begin()) return false;
    auto piece = std::prev(after);
    uint64_t skipped = address - piece->first;
    if (skipped > piece->second || piece->second - skipped < bytes) return false;
    cut(piece, address, bytes);
    return true;
}

}  // namespace tnr::cuda
