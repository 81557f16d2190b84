// See memory_book.hpp.
#include "gpu_server/worker/memory_book.hpp"

#include <algorithm>
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

uint64_t MemoryAccounts::used(uint32_t device) {
    LockGuard lock(mutex_);
    return accounts_[device].used;
}

uint64_t MemoryAccounts::shrink(uint32_t device, uint64_t bytes) {
    LockGuard lock(mutex_);
    auto& account = accounts_[device];
    const uint64_t less = std::min(bytes, account.granted - std::min(account.granted, account.used));
    account.granted -= less;
    return less;
}

// What a mapping was the last to hold is given up without the lock: the supervisor may have to hear of it.
void MemoryBook::mapped(uint64_t address, Mapping mapping) {
    LockGuard lock(mutex_);
    std::swap(mappings_[address], mapping);
}

void MemoryBook::unmapped(uint64_t address, uint64_t bytes) {
    std::map<uint64_t, Mapping> gone;
    LockGuard lock(mutex_);
    auto end = mappings_.lower_bound(address + bytes);
    for (auto at = mappings_.lower_bound(address); at != end;) gone.insert(mappings_.extract(at++));
}

bool MemoryBook::any_mapping(uint64_t address, uint64_t bytes) const {
    LockGuard lock(mutex_);
    auto next = mappings_.lower_bound(address + bytes);
    if (next == mappings_.begin()) return false;
    auto& [start, mapping] = *std::prev(next);
    return start + mapping.bytes > address;
}

std::optional<std::pair<uint64_t, Mapping>> MemoryBook::find(uint64_t address) const {
    LockGuard lock(mutex_);
    auto next = mappings_.upper_bound(address);
    if (next == mappings_.begin()) return std::nullopt;
    auto& found = *std::prev(next);
    if (address - found.first >= found.second.bytes) return std::nullopt;
    return found;
}

std::vector<std::pair<uint64_t, uint64_t>> MemoryBook::all_for_client(uint32_t device) const {
    std::vector<std::pair<uint64_t, uint64_t>> found;
    LockGuard lock(mutex_);
    for (auto& [address, mapping] : mappings_)
        if (mapping.for_client && mapping.physical->device == device) found.emplace_back(address, mapping.bytes);
    return found;
}

std::vector<uint32_t> MemoryBook::who_may_use(uint32_t device) const {
    std::vector<uint32_t> found;
    for (uint32_t other = 0; other < openings_.size(); ++other)
        if (other == device || openings_[device][other] > 0) found.push_back(other);
    return found;
}

}  // namespace tnr::worker
