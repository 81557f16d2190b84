// Pools of the program's own memory, which GPUs address, too: each allocation is mapped pinned memory (cuMemHostAlloc),
// and what a stream frees goes when the GPU is done with it.
#pragma once

#include "gpu_client/cuda/memory_pools.hpp"

namespace tnr::cuda {

// These return handles.
uint64_t create_host_pool(bool is_default);
uint64_t default_host_pool();
uint64_t chosen_host_pool();
bool choose_host_pool(uint64_t pool);  // false: it is none
void forget_choice(uint64_t pool);

CUresult allocate_from_host(MemoryPool& pool, uint64_t handle, uint64_t bytes, CUdeviceptr* out);
// Does not wait for the GPU. False: what is there is of no host pool, or has been freed.
bool free_to_host(uint64_t address);
// Until all that was freed is gone. It is freed by its address, which may be another's when the context has ended.
void await_frees_to_host();

}  // namespace tnr::cuda
