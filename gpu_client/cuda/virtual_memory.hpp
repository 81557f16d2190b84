// Physical memory that the program has a handle for (cuMemCreate), as other files need it.
#pragma once

#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/protocol/exchange_records.hpp"

namespace tnr::cuda {

// The name under which the claim's other processes find the memory.
CUresult lend_allocation(CUmemGenericAllocationHandle handle, wire::ThingName& name);
// A handle for memory of another process, which counts as that one's.
CUresult borrow_allocation(const wire::ThingName& name, CUmemGenericAllocationHandle& handle, uint64_t& bytes);

}  // namespace tnr::cuda
