// What belongs to one thread of the program: its stack of current contexts, its own default streams, its buffers.
//
// Held by a plain pointer, freed by a pthread key: a thread_local with a destructor would be gone when the program's
// exit handlers make their last calls on the main thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/protocol/wire.hpp"

namespace tnr::cuda {

struct ThreadState {
    std::vector<uint64_t> contexts;  // handles, also converted ones; the last one is current
    bool per_thread_default = false;
    wire::Bytes scratch;
    std::vector<std::pair<uint64_t, uint64_t>> default_streams;  // context handle, stream handle
    struct {
        uint64_t generation = 0;
        uint64_t context = 0;
        void* key = nullptr;
        void* value = nullptr;
    } storage_cache;  // context_storage.hpp
};

ThreadState& thread_state();
// Sets the one function that is called with the state of each thread that ends while the library can still be used.
// Setting it again replaces it.
void when_threads_end(void (*tidy_up)(ThreadState&));

// How often this thread has checked a context and looked up a device. A launch does each once, and a test counts them.
struct Lookups {
    uint64_t contexts = 0, devices = 0;
};
extern constinit thread_local Lookups lookups;

// The current context. CUDA_ERROR_INVALID_CONTEXT without one, CUDA_ERROR_CONTEXT_IS_DESTROYED when it is gone, its
// sticky error when a kernel has ended it.
CUresult current_context(Context*& context);
// The handle on top of the stack, unchecked; 0 if there is none. Of a green context that was converted, the primary
// context's.
uint64_t current_context_handle();
// The same as the program has set it.
uint64_t current_context_as_set();

// The same check, for a context that the caller names.
CUresult usable(Context* context);

}  // namespace tnr::cuda
