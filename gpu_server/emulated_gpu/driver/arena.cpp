#include "gpu_server/emulated_gpu/driver/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace tnr::emulated {
namespace {

constexpr uint64_t page = 4096;
// Protection changes in steps of this: each change may split a kernel mapping in two, and a process has
// only 65,530 of them.
constexpr uint64_t commit_step = uint64_t{2} << 20;

uint64_t round_down(uint64_t value, uint64_t step) {
    return value / step * step;
}
uint64_t round_up(uint64_t value, uint64_t step) {
    return round_down(value + step - 1, step);
}
void* pointer(uint64_t address) {
    return reinterpret_cast<void*>(address);
}

}  // namespace

bool Arena::reserve(uint64_t bytes) {
    bytes = round_up(bytes, commit_step) + commit_step;
    void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return false;
    LockGuard lock(mutex_);
    free_ = {{round_up(reinterpret_cast<uint64_t>(range), commit_step), bytes - commit_step}};
    return true;
}

uint64_t Arena::allocate(uint64_t bytes) {
    LockGuard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
        if (it->second < bytes) continue;
        uint64_t begin = it->first, rest = it->second - bytes;
        if (!commit(begin, begin + bytes)) return 0;
        free_.erase(it);
        if (rest) free_.emplace(begin + bytes, rest);
        return begin;
    }
    return 0;
}

bool Arena::commit(uint64_t begin, uint64_t end) {
    begin = round_down(begin, commit_step);
    end = round_up(end, commit_step);
    return mprotect(pointer(begin), end - begin, PROT_READ | PROT_WRITE) == 0;
}

// Whole steps within a free stretch fault from now on; what is left of its pages reads as zero.
void Arena::decommit(uint64_t begin, uint64_t end) {
    uint64_t first_page = round_up(begin, page), last_page = round_down(end, page);
    if (first_page < last_page) madvise(pointer(first_page), last_page - first_page, MADV_DONTNEED);
    uint64_t first_step = round_up(begin, commit_step), last_step = round_down(end, commit_step);
    if (first_step < last_step) mprotect(pointer(first_step), last_step - first_step, PROT_NONE);
}

void Arena::release(uint64_t address, uint64_t bytes) {
    LockGuard lock(mutex_);
    auto it = free_.emplace(address, bytes).first;
    if (auto next = std::next(it); next != free_.end() && it->first + it->second == next->first) {
        it->second += next->second;
        free_.erase(next);
    }
    if (it != free_.begin()) {
        auto before = std::prev(it);
        if (before->first + before->second == it->first) {
            before->second += it->second;
            free_.erase(it);
            it = before;
        }
    }
    // Only around what was released: the rest of the stretch has been dealt with before.
    uint64_t begin = std::max(it->first, round_down(address, commit_step));
    uint64_t end = std::min(it->first + it->second, round_up(address + bytes, commit_step));
    decommit(begin, end);
}

}  // namespace tnr::emulated
