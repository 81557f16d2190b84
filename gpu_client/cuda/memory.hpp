// What is known about addresses: device memory, symbols of loaded code, the program's pinned memory.
#pragma once

#include <atomic>

#include "gpu_client/cuda/device_memory.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// True if allocated device memory, or a symbol of loaded code, covers all of it; always true if `bytes` is 0.
bool is_allocated(uint64_t address, uint64_t bytes);
// True if the address is in a device's range or a known symbol; otherwise it is host memory.
bool is_device_address(uint64_t address);
// The device whose range contains the address; null when none does.
Device* device_of_address(uint64_t address);
bool find_allocation(uint64_t address, Allocation& found);
// Global variables of loaded code have addresses outside the ranges.
void note_symbol(uint64_t address, uint64_t bytes, uint64_t context, uint64_t library);
void forget_symbols(uint64_t library);
// So has what graphs allocate (graph_memory.hpp). It is never forgotten: the worker's driver uses the addresses again.
void note_graph_memory(uint64_t address, uint64_t bytes, uint64_t context);
// True for an address that a node of a graph has had; the worker's driver knows whether it is allocated.
bool is_graph_memory(uint64_t address);

// True once the program has set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS anywhere.
extern std::atomic<bool> any_sync_memops;

// Allocates in the current context.
CUresult allocate_memory(uint64_t bytes, CUdeviceptr* out);
// In order with all work, or with that of a stream.
CUresult free_memory(uint64_t address);
CUresult free_memory(uint64_t address, const StreamRef& stream, const Context& of_stream);

}  // namespace tnr::cuda
