// Every function that cuGetProcAddress can hand out, ours and the emulated driver's. The table is generated from
// cuda.calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace tnr::cuda {

struct EntryPoint {
    const char* name;  // without _vN
    int since;         // the CUDA version (1000 * major + 10 * minor) that brought this ABI
    void* pointer;
    int per_thread_since;  // likewise for its _ptsz or _ptds variant; 0: there is none
    void* per_thread_pointer;
};
// Sorted by name, then by version.
extern const EntryPoint entry_points[];
extern const size_t entry_point_count;

struct FoundEntryPoint {
    void* pointer = nullptr;
    bool name_exists = false;  // without a pointer: only in versions newer than the caller's
};

// The newest ABI of `name` that programs built for CUDA `version` know, in its per-thread variant if that is wanted and
// exists.
inline FoundEntryPoint find_entry_point(std::string_view name, int version, bool per_thread) {
    auto before = [](const EntryPoint& entry, std::string_view wanted) { return entry.name < wanted; };
    auto* end = entry_points + entry_point_count;
    FoundEntryPoint found;
    for (auto* entry = std::lower_bound(entry_points, end, name, before); entry != end && entry->name == name;
         ++entry) {
        found.name_exists = true;
        if (entry->since > version) break;
        bool variant = per_thread && entry->per_thread_pointer && entry->per_thread_since <= version;
        found.pointer = variant ? entry->per_thread_pointer : entry->pointer;
    }
    return found;
}

}  // namespace tnr::cuda
