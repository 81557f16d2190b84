// Every function that cuGetProcAddress can hand out. The table is generated from cuda.calls.
#pragma once

#include <cstddef>

namespace tnr::cuda {

struct EntryPoint {
    const char* name;  // without _vN
    int since;         // the CUDA version (1000 * major + 10 * minor) that brought this ABI
    void* pointer;
    int per_thread_since;  // likewise for its _ptsz or _ptds variant; 0: there is none
    void* per_thread_pointer;
};
extern const EntryPoint entry_points[];
extern const size_t entry_point_count;

}  // namespace tnr::cuda
