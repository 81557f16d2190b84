// Memory that cuMemCreate makes in the host's memory. It takes memory of a GPU of the session, and where it is mapped, that and
// the program's pages are kept coherent as those of mapped memory are (shared_pages.hpp): so at one address at a time.
// Any thread.
#pragma once

#include <cstdint>

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// CUDA_ERROR_NOT_SUPPORTED for memory that other processes may have.
CUresult check_host_memory(const CUmemAllocationProp& properties);

// The program can use the memory at this address, which the worker has been told of. The context moves its pages: it is the
// program's only as long as that lives.
CUresult begin_host_mapping(Context& context, uint64_t address, uint64_t bytes);
// The GPU has what the program has written there, and the program nothing any more. Waits for the GPU's work.
void end_host_mapping(uint64_t address);

}  // namespace tnr::cuda
