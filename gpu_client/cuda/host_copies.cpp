// See host_copies.hpp.
#include "gpu_client/cuda/host_copies.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "gpu_client/cuda/shared_memory.hpp"

namespace tnr::cuda {

static bool same_rows(const HostRows& one, const HostRows& other) {
    return one.address == other.address && one.row_bytes == other.row_bytes && one.rows == other.rows &&
           (one.rows == 1 || one.pitch == other.pitch);
}

bool same_rows(const HostCopy& one, const HostCopy& other) {
    return same_rows(one.host, other.host) && one.slice_rows == other.slice_rows &&
           one.copied_rows == other.copied_rows;
}

static const std::byte* end_of(const HostRows& rows) {
    return rows.address + extent(rows.row_bytes, rows.rows, rows.pitch);
}

bool overlap(const HostRows& one, const HostRows& other) {
    return one.address < end_of(other) && other.address < end_of(one);
}

uint64_t shared_address(const HostRows& rows) {
    SharedMemory shared;
    const auto begin = reinterpret_cast<uint64_t>(rows.address);
    if (!anything_shared() || !find_shared(begin, shared)) return 0;
    const uint64_t offset = begin - shared.host;
    const bool all = offset < shared.bytes && extent(rows.row_bytes, rows.rows, rows.pitch) <= shared.bytes - offset;
    return all ? shared.device + offset : 0;
}

bool any_shared(const HostCopies& copies) {
    return anything_shared() &&
           std::any_of(copies.begin(), copies.end(), [](auto& copy) { return shared_address(copy->host) != 0; });
}

void HostCopies::add(Copy copy) {
    index(copy);
    all_.push_back(std::move(copy));
}

void HostCopies::index(const Copy& copy) {
    if (!find_same(*copy)) by_address_.emplace(copy->host.address, copy);
}

void HostCopies::index() {
    by_address_.clear();
    for (auto& copy : all_) index(copy);
}

HostCopies::Copy HostCopies::find_same(const HostCopy& like) const {
    auto [first, last] = by_address_.equal_range(like.host.address);
    auto found = std::find_if(first, last, [&](auto& entry) { return same_rows(*entry.second, like); });
    return found != last ? found->second : nullptr;
}

namespace {

// Equal where copies share a mirror.
uint64_t mirror_of(const HostCopy& copy) {
    return copy.joined != 0 ? copy.joined : *copy.mirror;
}

// Of the copies of one kind that begin before some address: the one that ends last, and the one of another mirror that
// does. One of them overlaps what begins there if any of them does.
class LastEnds {
public:
    void add(const HostCopy& copy) {
        auto end = end_of(copy.host);
        if (first_.mirror == mirror_of(copy)) {
            first_.end = std::max(first_.end, end);
        } else if (end > first_.end) {
            second_ = std::exchange(first_, {mirror_of(copy), end});
        } else if (end > second_.end) {
            second_ = {mirror_of(copy), end};
        }
    }
    bool reach_into(const HostCopy& copy) const {
        return (first_.mirror == mirror_of(copy) ? second_ : first_).end > copy.host.address;
    }

private:
    struct End {
        uint64_t mirror = 0;
        const std::byte* end = nullptr;
    };
    End first_, second_;
};

struct Placed {
    const HostCopy* copy;
    size_t side;  // 0: of `some`, 1: of the others
};

}  // namespace

bool any_overlap(const HostCopies& some, const HostCopies& others, size_t* steps) {
    std::vector<Placed> placed;
    for (auto& copy : some) placed.push_back({copy.get(), 0});
    for (auto& copy : others) placed.push_back({copy.get(), 1});
    std::sort(placed.begin(), placed.end(), [&](auto& one, auto& other) {
        if (steps) ++*steps;
        return one.copy->host.address < other.copy->host.address;
    });
    std::array<std::array<LastEnds, 2>, 2> before;  // by the side, and whether to the device
    for (auto& [copy, side] : placed) {
        auto& theirs = before[1 - side];
        if (theirs[false].reach_into(*copy) || (!copy->to_device && theirs[true].reach_into(*copy))) return true;
        before[side][copy->to_device].add(*copy);
    }
    return false;
}

}  // namespace tnr::cuda
