#include "gpu_server/emulated_gpu/driver/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "gpu_client/protocol/address_zone.hpp"
#include "gpu_server/emulated_gpu/driver/addresses.hpp"

namespace tnr::emulated {
namespace {

constexpr uint64_t page = 4096;
// Protection changes in steps of this: each change may split a kernel mapping in two, and a process has
// only 65,530 of them.
constexpr uint64_t commit_step = DeviceFile::page_bytes;

constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// Managed variables lie in an arena, and where this driver works for a program elsewhere, the addresses must be free
// there as well. MAP_FAILED if no place was.
void* reserve_in_zone(uint64_t bytes) {
    constexpr uint64_t room = wire::address_zone_end - wire::address_zone_begin;
    constexpr int tries = 8;
    std::random_device random;
    for (int i = 0; i < tries && bytes < room; ++i) {
        uint64_t number = uint64_t{random()} << 32 | random();
        uint64_t place = wire::address_zone_begin + round_down(number % (room - bytes), wire::address_alignment);
        void* range = mmap(pointer(place), bytes, PROT_NONE, reserved, -1, 0);  // taken as a hint
        if (range == pointer(place)) return range;
        if (range != MAP_FAILED) munmap(range, bytes);
    }
    return MAP_FAILED;
}

}  // namespace

bool Arena::reserve(uint64_t bytes, DeviceFile* file) {
    bytes = round_up(bytes, commit_step) + commit_step;
    void* range = reserve_in_zone(bytes);
    if (range == MAP_FAILED) range = mmap(nullptr, bytes, PROT_NONE, reserved, -1, 0);
    if (range == MAP_FAILED) return false;
    LockGuard lock(mutex_);
    file_ = file;
    free_ = {{round_up(reinterpret_cast<uint64_t>(range), commit_step), bytes - commit_step}};
    return true;
}

uint64_t Arena::allocate(uint64_t bytes, uint64_t alignment) {
    LockGuard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
        auto [start, length] = *it;
        uint64_t begin = round_up(start, alignment), skipped = begin - start;
        if (skipped > length || length - skipped < bytes) continue;
        if (!commit(begin, begin + bytes)) {
            decommit(std::max(start, round_down(begin, commit_step)),
                     std::min(start + length, round_up(begin + bytes, commit_step)));
            return 0;
        }
        free_.erase(it);
        if (skipped) free_.emplace(start, skipped);
        if (uint64_t rest = length - skipped - bytes) free_.emplace(begin + bytes, rest);
        return begin;
    }
    return 0;
}

bool Arena::commit(uint64_t begin, uint64_t end) {
    begin = round_down(begin, commit_step);
    end = round_up(end, commit_step);
    if (file_) return commit_pages(begin, end);
    // What is larger than a step is mostly used as a whole: a fault for each step, and not for each of its 512 pages.
    if (end - begin > commit_step) madvise(pointer(begin), end - begin, MADV_HUGEPAGE);
    return mprotect(pointer(begin), end - begin, PROT_READ | PROT_WRITE) == 0;
}

bool Arena::commit_pages(uint64_t begin, uint64_t end) {
    for (uint64_t at = begin; at < end; at += commit_step) {
        if (pages_.count(at)) continue;  // a neighbour's, too
        const int64_t page = file_->take(commit_step);
        if (page < 0) return false;
        pages_[at] = page;
        if (mmap(pointer(at), commit_step, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_->fd(), page) ==
            MAP_FAILED)
            return false;
    }
    return true;
}

void Arena::decommit_pages(uint64_t begin, uint64_t end) {
    for (auto it = pages_.lower_bound(begin); it != pages_.end() && it->first < end; it = pages_.erase(it)) {
        (void)mmap(pointer(it->first), commit_step, PROT_NONE, reserved | MAP_FIXED, -1, 0);
        file_->give_back(it->second, commit_step);
    }
}

// Whole steps within a free stretch fault from now on; what is left of its pages reads as zero.
void Arena::decommit(uint64_t begin, uint64_t end) {
    if (file_) return decommit_pages(round_up(begin, commit_step), round_down(end, commit_step));
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
