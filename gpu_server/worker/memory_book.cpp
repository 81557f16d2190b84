// See memory_book.hpp.
#include "gpu_server/worker/memory_book.hpp"

#include <iterator>

#include "api_client/base/mutex.hpp"

namespace tnr::worker {

void MemoryAccounts::grant(uint32_t device, uint64_t bytes) {
    LockGuard lock(mutex_);
    if (device < accounts_.size()) accounts_[device].granted += bytes;
}

bool MemoryAccounts::take(uint32_t device, uint64_t bytes, uint64_t& lacking) {
    LockGuard lock(mutex_);
    auto& account = accounts_[device];
    uint64_t left = account.granted - account.used;
    lacking = bytes > left ? bytes - left : 0;
    if (lacking == 0) account.used += bytes;
    return lacking == 0;
}

void MemoryAccounts::give_back(uint32_t device, uint64_t bytes) {
    LockGuard lock(mutex_);
    accounts_[device].used -= bytes;
}

void MemoryBook::unmapped(uint64_t address, uint64_t bytes) {
    mappings_.erase(mappings_.lower_bound(address), mappings_.lower_bound(address + bytes));
}

bool MemoryBook::any_mapping(uint64_t address, uint64_t bytes) const {
    auto next = mappings_.lower_bound(address + bytes);
    if (next == mappings_.begin()) return false;
    auto& [start, mapping] = *std::prev(next);
    return start + mapping.bytes > address;
}

const std::pair<const uint64_t, Mapping>* MemoryBook::find(uint64_t address) const {
    auto next = mappings_.upper_bound(address);
    if (next == mappings_.begin()) return nullptr;
    auto& found = *std::prev(next);
    return address - found.first < found.second.bytes ? &found : nullptr;
}

std::vector<uint32_t> MemoryBook::who_may_use(uint32_t device) const {
    std::vector<uint32_t> found;
    for (uint32_t other = 0; other < openings_.size(); ++other)
        if (other == device || openings_[device][other] > 0) found.push_back(other);
    return found;
}

}  // namespace tnr::worker
