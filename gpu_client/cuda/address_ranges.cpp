// See address_ranges.hpp.
#include "gpu_client/cuda/address_ranges.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <random>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/process_mappings.hpp"
#include "gpu_client/protocol/address_zone.hpp"

namespace tnr::cuda {

namespace {

// Random places tried in the zone before the whole address space is searched; a program that uses the zone at all
// leaves most of it free.
constexpr int tries_in_zone = 16;
// Left free at either end of a gap between two mappings: a heap grows upwards, stacks and mappings downwards.
constexpr uint64_t gap_margin = uint64_t{64} << 30;
// Pages that are tried one by one when not all of a piece can be held.
constexpr uint64_t single_pages_max = 4096;

struct Range {
    uint64_t begin, end;
};

// Bypasses the C library's mmap: sanitizers intercept it, and move what they do not expect.
enum class Mapped { yes, taken, not_allowed };
Mapped map_without_access(uint64_t address, uint64_t bytes) {
    auto* wanted = reinterpret_cast<void*>(address);
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    long got = ::syscall(SYS_mmap, wanted, bytes, PROT_NONE, flags, -1, 0L);
    if (got == -1) return errno == EEXIST ? Mapped::taken : Mapped::not_allowed;
    if (static_cast<uint64_t>(got) == address) {
        (void)::madvise(wanted, bytes, MADV_DONTDUMP);
        (void)::madvise(wanted, bytes, MADV_DONTFORK);
        return Mapped::yes;
    }
    ::syscall(SYS_munmap, got, bytes);  // a kernel before 4.17 ignores the flag and takes the address as a hint
    return Mapped::taken;
}

bool is_free(uint64_t address, uint64_t bytes) {
    auto ranges = process_mappings();
    auto overlaps = [&](const ProcessMapping& range) { return range.begin < address + bytes && address < range.end; };
    return !ranges.empty() && std::none_of(ranges.begin(), ranges.end(), overlaps);
}

uint64_t random_number() {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
}

// A random multiple of `alignment` with `bytes` behind it in the range; 0 when there is none.
uint64_t random_place(Range range, uint64_t bytes, uint64_t alignment) {
    uint64_t first = (range.begin + alignment - 1) & ~(alignment - 1);
    if (range.end < first || range.end - first < bytes) return 0;
    return first + random_number() % ((range.end - first - bytes) / alignment + 1) * alignment;
}

// The gaps between what is mapped, the largest first.
std::vector<Range> gaps() {
    std::vector<Range> found;
    uint64_t end = 0;
    for (const auto& range : process_mappings()) {
        uint64_t begin = end + gap_margin, until = range.begin - std::min(range.begin, gap_margin);
        if (until > begin && until <= wire::user_addresses_end) found.push_back({begin, until});
        end = std::max(end, range.end);
    }
    std::sort(found.begin(), found.end(), [](auto& a, auto& b) { return a.end - a.begin > b.end - b.begin; });
    return found;
}

// Pages outside the devices' ranges, which stay held: the worker's driver uses their addresses again and again.
class HeldPages {
public:
    bool add(Range range, uint64_t page) TNR_EXCLUDES(mutex_);

private:
    Range next_gap(Range range) const TNR_REQUIRES(mutex_);
    bool hold(Range gap, uint64_t page) TNR_REQUIRES(mutex_);
    void note(Range range) TNR_REQUIRES(mutex_);

    Mutex mutex_;
    std::map<uint64_t, uint64_t> ends_ TNR_GUARDED_BY(mutex_);  // by where a stretch begins; none touches another
};

HeldPages& held_pages() {
    static auto* all = new HeldPages;
    return *all;
}

// What of the range is not held at its lowest place; empty when all of it is.
Range HeldPages::next_gap(Range range) const {
    auto next = ends_.upper_bound(range.begin);
    if (next != ends_.begin() && std::prev(next)->second > range.begin) {
        range.begin = std::min(std::prev(next)->second, range.end);
        next = ends_.upper_bound(range.begin);
    }
    if (next != ends_.end() && range.begin < range.end) range.end = std::min(range.end, next->first);
    return range;
}

void HeldPages::note(Range range) {
    auto at = ends_.lower_bound(range.begin);
    if (at != ends_.begin() && std::prev(at)->second == range.begin) range.begin = (--at)->first;
    while (at != ends_.end() && at->first <= range.end) {
        range.end = std::max(range.end, at->second);
        at = ends_.erase(at);
    }
    ends_[range.begin] = range.end;
}

bool HeldPages::hold(Range gap, uint64_t page) {
    if (hold_addresses(gap.begin, gap.end - gap.begin)) {
        note(gap);
        return true;
    }
    const uint64_t end = std::min(gap.end, gap.begin + single_pages_max * page);
    for (uint64_t at = gap.begin; at < end; at += page)
        if (map_without_access(at, page) == Mapped::yes) note({at, at + page});
    return false;
}

bool HeldPages::add(Range range, uint64_t page) {
    LockGuard lock(mutex_);
    bool all = true;
    while (range.begin < range.end) {
        const Range gap = next_gap(range);
        if (gap.begin < gap.end) all &= hold(gap, page);
        range.begin = gap.end;
    }
    return all;
}

}  // namespace

bool hold_addresses(uint64_t address, uint64_t bytes) {
    auto mapped = map_without_access(address, bytes);
    if (mapped != Mapped::not_allowed) return mapped == Mapped::yes;
    if (!is_free(address, bytes)) return false;
    log(LogLevel::debug, "this process may not reserve %llu GiB of addresses: they are used unreserved",
        static_cast<unsigned long long>(bytes >> 30));
    return true;
}

void let_go_of_addresses(uint64_t address, uint64_t bytes) {
    ::syscall(SYS_munmap, reinterpret_cast<void*>(address), bytes);
}

uint64_t hold_addresses_somewhere(uint64_t bytes, uint64_t alignment) {
    for (int i = 0; i < tries_in_zone; ++i) {
        uint64_t place = random_place({wire::address_zone_begin, wire::address_zone_end}, bytes, alignment);
        if (place != 0 && hold_addresses(place, bytes)) return place;
    }
    for (auto& gap : gaps()) {
        uint64_t place = random_place(gap, bytes, alignment);
        if (place != 0 && hold_addresses(place, bytes)) return place;
    }
    return 0;
}

bool hold_pages(uint64_t address, uint64_t bytes) {
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    uint64_t begin = address & ~(page - 1), end = (address + bytes + page - 1) & ~(page - 1);
    return begin < end && held_pages().add({begin, end}, page);
}

bool show_pages(uint64_t address, uint64_t bytes, int file, uint64_t offset) {
    auto* wanted = reinterpret_cast<void*>(address);
    long got = ::syscall(SYS_mmap, wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, offset);
    if (got == -1) return false;
    (void)::madvise(wanted, bytes, MADV_DONTFORK);
    return true;
}

void hide_pages(uint64_t address, uint64_t bytes) {
    auto* wanted = reinterpret_cast<void*>(address);
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (::syscall(SYS_mmap, wanted, bytes, PROT_NONE, flags, -1, 0L) == -1) return;
    (void)::madvise(wanted, bytes, MADV_DONTDUMP);
    (void)::madvise(wanted, bytes, MADV_DONTFORK);
}

}  // namespace tnr::cuda
