// Where memory may be and who may use it, as programs say it. The client's library and the emulated driver ask the same.
#pragma once

#include <cuda.h>

namespace tnr {

// Of a device to memory, its own or another's.
inline bool is_access(CUmemAccess_flags flags) {
    return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
           flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

inline bool is_host_location(CUmemLocationType type) {
    return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

}  // namespace tnr
