// Pools of managed memory: each allocation is like one of cuMemAllocManaged, on the device of the pool's place, or of the
// stream in which it is made where that is no device. It belongs to the device's primary context, or while that is not
// active, to the stream's. All devices and the program may use it.
#pragma once

#include "gpu_client/cuda/memory_pools.hpp"

namespace tnr::cuda {

// These return handles.
uint64_t create_managed_pool(const CUmemLocation& place);
uint64_t default_managed_pool(const CUmemLocation& place);
uint64_t chosen_managed_pool(const CUmemLocation& place);
bool choose_managed_pool(const CUmemLocation& place, uint64_t pool);  // false: it is none
void forget_managed_choice(uint64_t pool);

CUresult allocate_managed(MemoryPool& pool, uint64_t handle, uint64_t bytes, Context& of_stream, CUdeviceptr* out);

}  // namespace tnr::cuda
