// Copies between the device and the program's memory in graphs, which have a mirror of that memory: graph_needs.hpp.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "gpu_client/cuda/rows.hpp"

namespace tnr::cuda {

struct HostCopy {
    bool to_device = false;
    HostRows host;
    // Of a box with gaps between its slices, the gaps are mirrored, too, but never copied: of every `slice_rows` rows the
    // first `copied_rows` are the box's. 0: all are.
    uint64_t slice_rows = 0, copied_rows = 0;
    // Address of the rows in device memory, packed unless they are a part of another mirror. The memory goes with the last
    // copy that uses it.
    std::shared_ptr<const uint64_t> mirror;
    // Base of the mirror that this one is a part of (graph_joined_copies.hpp), 0: none. The rows are as far apart there as
    // in the program's memory. Parts of one follow the graph's order where they overlap.
    uint64_t joined = 0;
    uint64_t context = 0;  // handle: of the mirror
    uint64_t stream = 0;   // handle of the one that it was captured in, or
    uint64_t node = 0;     // of the node that it was added or set as
    // A function of the graph comes behind it and has seen what it brought; it may have changed that.
    bool seen_by_function = false;
    bool disabled = false;  // in an instance
};

// From one row to the next in the mirror.
inline uint64_t mirror_pitch(const HostCopy& copy) {
    return copy.joined != 0 && copy.host.rows > 1 ? copy.host.pitch : copy.host.row_bytes;
}
// From the first row's start to the last one's end there.
inline uint64_t mirrored_bytes(const HostCopy& copy) {
    return extent(copy.host.row_bytes, copy.host.rows, mirror_pitch(copy));
}

// Those of one graph, in the order in which they came. A program may capture thousands of them, one by one, so that adding
// one costs the same however many there are.
class HostCopies {
public:
    using Copy = std::shared_ptr<HostCopy>;

    auto begin() const { return all_.begin(); }
    auto end() const { return all_.end(); }
    size_t size() const { return all_.size(); }
    bool empty() const { return all_.empty(); }

    void add(Copy copy);
    // The first one with the rows and the slices of `like`, either way. Null: there is none.
    Copy find_same(const HostCopy& like) const;
    // Returns how many there were.
    template <class Predicate>
    size_t erase_if(Predicate&& predicate) {
        auto count = std::erase_if(all_, predicate);
        if (count != 0) index();
        return count;
    }

private:
    void index();
    void index(const Copy& copy);

    std::vector<Copy> all_;
    // The first of those with the same rows and slices.
    std::unordered_multimap<const std::byte*, Copy> by_address_;
};

// Calls `use(rows, offset)` for what is copied: some of the program's rows, and how far into the mirror they begin.
template <class Use>
void for_each_slice(const HostCopy& copy, Use&& use) {
    auto& host = copy.host;
    if (copy.slice_rows == 0) return use(host, uint64_t{0});
    for (uint64_t row = 0; row < host.rows; row += copy.slice_rows)
        use(HostRows{host.address + row * host.pitch, host.row_bytes, copy.copied_rows, host.pitch},
            row * mirror_pitch(copy));
}

// The same for rows that lie behind each other in the mirror.
template <class Use>
void for_each_stretch(const HostCopy& copy, Use&& use) {
    for_each_slice(copy, [&](const HostRows& host, uint64_t offset) {
        const uint64_t pitch = mirror_pitch(copy);
        if (pitch == host.row_bytes) return use(host, offset);
        for (uint64_t row = 0; row < host.rows; ++row)
            use(HostRows{host.address + row * host.pitch, host.row_bytes, 1, host.row_bytes}, offset + row * pitch);
    });
}

// The GPU's address of rows that the program has shared with it (shared_memory.hpp), maybe after they got a mirror; 0: they
// are not shared, or not all.
uint64_t shared_address(const HostRows& rows);
bool any_shared(const HostCopies& copies);

bool same_rows(const HostCopy& one, const HostCopy& other);
bool overlap(const HostRows& one, const HostRows& other);

// True if one of `some` and one of `others` with another mirror overlap, at least one of them to the host: which of them
// comes first matters then. `steps`, if given, counts what was looked at.
bool any_overlap(const HostCopies& some, const HostCopies& others, size_t* steps = nullptr);

}  // namespace tnr::cuda
