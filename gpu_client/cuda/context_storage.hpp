// Values that libraries keep per context: a map (context, key) → (value, destructor). cudart asks for its own on every
// single runtime call, so the last answer is kept per thread.
#pragma once

#include <cstdint>

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

using StorageDestructor = void (*)(CUcontext context, void* key, void* value);

// `context`: null and -1 mean the current one. CUDA_ERROR_INVALID_HANDLE if the key is missing or, for put, already
// there.
CUresult storage_put(CUcontext context, void* key, void* value, StorageDestructor destructor);
CUresult storage_delete(CUcontext context, void* key);
CUresult storage_get(void** value, CUcontext context, void* key);
// Runs each destructor of a context that ends, once.
void storage_context_ends(uint64_t context_handle);

}  // namespace tnr::cuda
