// What a program has said about managed memory (cuMemAdvise, cuMemPrefetchAsync), and what cuMemRangeGetAttribute
// answers. The client's library keeps it for programs, the emulated driver for whoever uses it directly. Not for
// several threads at once. Whoever includes this has included cuda.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

namespace tnr {

inline CUmemLocation location_of(CUdevice device) {
    CUmemLocation location{};
    location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device == CU_DEVICE_CPU ? 0 : device;
    return location;
}

// As cuda.h has it: memory is said to be accessed by devices or by the host, not by one of the host's nodes.
inline bool fits_advice(CUmem_advise advice, CUmemLocation where) {
    const bool of_node =
        where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA || where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    return !of_node || (advice != CU_MEM_ADVISE_SET_ACCESSED_BY && advice != CU_MEM_ADVISE_UNSET_ACCESSED_BY);
}

class MemoryAdvice {
public:
    // Of all pages that have some of the memory, as cuda.h has it.
    void advise(uint64_t address, uint64_t bytes, CUmem_advise advice, CUmemLocation where) {
        change(address, bytes, [&](Said& said) { apply(said, advice, where); });
    }
    void prefetched(uint64_t address, uint64_t bytes, CUmemLocation where) {
        change(address, bytes, [&](Said& said) { said.prefetched = where; });
    }
    // The memory is freed.
    void forget(uint64_t address, uint64_t bytes) {
        const auto [begin, end] = pages(address, bytes);
        split(begin);
        split(end);
        said_.erase(said_.lower_bound(begin), said_.lower_bound(end));
    }

    // `data` has room for `size` bytes.
    CUresult answer(void* data, size_t size, CUmem_range_attribute attribute, uint64_t address, uint64_t bytes) const {
        if (!data || size == 0 || size % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
            auto devices = fold(
                address, bytes, [](auto& said) { return said.accessed_by; }, both);
            list(static_cast<int*>(data), size / sizeof(int), devices);
            return CUDA_SUCCESS;
        }
        if (size != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
        int value = 0;
        switch (attribute) {
            case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
                value = fold(
                            address, bytes, [](auto& said) { return uint64_t{said.read_mostly}; }, both) != 0
                            ? 1
                            : 0;
                break;
            case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
                value = device_at(common(address, bytes, &Said::preferred));
                break;
            case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
                value = device_at(common(address, bytes, &Said::prefetched));
                break;
            case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
                value = common(address, bytes, &Said::preferred).type;
                break;
            case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
                value = common(address, bytes, &Said::preferred).id;
                break;
            case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
                value = common(address, bytes, &Said::prefetched).type;
                break;
            case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
                value = common(address, bytes, &Said::prefetched).id;
                break;
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
        std::memcpy(data, &value, sizeof value);
        return CUDA_SUCCESS;
    }

private:
    struct Said {
        bool read_mostly = false;
        CUmemLocation preferred{}, prefetched{};  // of type "invalid": nowhere
        uint64_t accessed_by = 0;                 // a bit for each device, the last one for the CPU
    };
    struct Piece {
        uint64_t end = 0;
        Said said;
    };
    static constexpr int cpu_bit = 63;
    static constexpr uint64_t page_bytes = 4096;

    static std::pair<uint64_t, uint64_t> pages(uint64_t address, uint64_t bytes) {
        return {address / page_bytes * page_bytes, (address + bytes + page_bytes - 1) / page_bytes * page_bytes};
    }

    static uint64_t bit_of(CUmemLocation where) {
        return uint64_t{1} << (where.type == CU_MEM_LOCATION_TYPE_DEVICE ? where.id % cpu_bit : cpu_bit);
    }
    static uint64_t both(uint64_t one, uint64_t other) { return one & other; }

    static void apply(Said& said, CUmem_advise advice, CUmemLocation where) {
        switch (advice) {
            case CU_MEM_ADVISE_SET_READ_MOSTLY:
            case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
                said.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
                break;
            case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
                said.preferred = where;
                break;
            case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
                said.preferred = {};
                break;
            case CU_MEM_ADVISE_SET_ACCESSED_BY:
                said.accessed_by |= bit_of(where);
                break;
            case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
                said.accessed_by &= ~bit_of(where);
                break;
        }
    }

    static int device_at(CUmemLocation where) {
        if (where.type == CU_MEM_LOCATION_TYPE_DEVICE) return where.id;
        return where.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
    }

    static void list(int* out, size_t room, uint64_t devices) {
        size_t count = 0;
        for (int bit = 0; bit <= cpu_bit && count < room; ++bit)
            if ((devices >> bit & 1) != 0) out[count++] = bit == cpu_bit ? CU_DEVICE_CPU : bit;
        while (count < room) out[count++] = CU_DEVICE_INVALID;
    }

    void split(uint64_t at) {
        auto next = said_.upper_bound(at);
        if (next == said_.begin()) return;
        auto& [begin, piece] = *std::prev(next);
        if (begin == at || piece.end <= at) return;
        said_[at] = piece;
        piece.end = at;
    }
    template <class Change>
    void change(uint64_t address, uint64_t bytes, Change&& change) {
        const auto [begin, end] = pages(address, bytes);
        split(begin);
        split(end);
        for (uint64_t at = begin; at < end;) {
            auto next = said_.lower_bound(at);
            if (next == said_.end() || next->first != at) {
                uint64_t until = next == said_.end() ? end : std::min(end, next->first);
                next = said_.emplace(at, Piece{until, {}}).first;
            }
            change(next->second.said);
            at = next->second.end;
        }
    }
    template <class Visit>
    void each(uint64_t address, uint64_t bytes, Visit&& visit) const {
        const Said nothing;
        const uint64_t end = address + bytes;
        auto next = said_.upper_bound(address);
        if (next != said_.begin() && std::prev(next)->second.end > address) --next;
        for (uint64_t at = address; at < end;) {
            bool inside = next != said_.end() && next->first <= at;
            visit(inside ? next->second.said : nothing);
            at = inside ? next->second.end : (next == said_.end() ? end : next->first);
            if (inside) ++next;
        }
    }
    template <class Get, class Combine>
    uint64_t fold(uint64_t address, uint64_t bytes, Get&& get, Combine&& combine) const {
        uint64_t all = UINT64_MAX;
        each(address, bytes, [&](const Said& said) { all = combine(all, get(said)); });
        return all;
    }
    // The same everywhere in the range, or nowhere.
    CUmemLocation common(uint64_t address, uint64_t bytes, CUmemLocation Said::*which) const {
        CUmemLocation first{};
        bool any = false, same = true;
        each(address, bytes, [&](const Said& said) {
            auto& here = said.*which;
            if (!any) first = here;
            same = same && here.type == first.type && here.id == first.id;
            any = true;
        });
        return same ? first : CUmemLocation{};
    }

    std::map<uint64_t, Piece> said_;  // by where it begins; pieces do not overlap
};

// What the batch functions get: the first operation that each location is for.
inline bool sound_batch(const void* addresses, const void* sizes, size_t count, const CUmemLocation* locations,
                        const size_t* first, size_t locations_count) {
    if (!addresses || !sizes || count == 0 || !locations || !first) return false;
    if (locations_count == 0 || locations_count > count || first[0] != 0) return false;
    for (size_t i = 1; i < locations_count; ++i)
        if (first[i] <= first[i - 1] || first[i] >= count) return false;
    return true;
}
inline CUmemLocation location_in_batch(size_t operation, const CUmemLocation* locations, const size_t* first,
                                       size_t locations_count) {
    size_t at = 0;
    while (at + 1 < locations_count && first[at + 1] <= operation) ++at;
    return locations[at];
}

}  // namespace tnr
