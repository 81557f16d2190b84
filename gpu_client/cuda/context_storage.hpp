// Values that libraries keep per context: a map (context, key) → (value, destructor). cudart asks for its own on every
// single runtime call, so the last answer is kept per thread.
#pragma once

#include <cstdint>

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

using StorageDestructor = void (*)(CUcontext context, void* key, void* value);

// `context`: null or -1 mean the current one. A missing key, or one that is there already (put): INVALID_HANDLE.
CUresult storage_put(CUcontext context, void* key, void* value, StorageDestructor destructor);
CUresult storage_delete(CUcontext context, void* key);
CUresult storage_get(void** value, CUcontext context, void* key);
// The context ends: runs every destructor once.
void storage_context_ends(uint64_t context_handle);

}  // namespace tnr::cuda
