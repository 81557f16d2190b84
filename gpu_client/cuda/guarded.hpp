// The wrapper in which every exported CUDA function does its work. (The exported symbol is generated around it:
// watched_calls.hpp.)
//
// The host program was built against a C API: an exception crossing into it would end a training run that a status code
// lets it survive. And no call is served before cuInit, in the child of a fork (which has inherited our data but none
// of our threads, and must not touch its parent's sockets), or after the driver has ended at exit.
#pragma once

#include <atomic>

#include "gpu_client/cuda/driver_api.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/stats.hpp"

namespace tnr::cuda {

enum class LibraryState : int { uninitialized, ready, forked, ended };
inline std::atomic<LibraryState> library_state{LibraryState::uninitialized};

// Why no call can be served now; CUDA_SUCCESS if calls are served.
inline CUresult refusal() {
    switch (library_state.load(std::memory_order_acquire)) {
        case LibraryState::ready:
            return CUDA_SUCCESS;
        case LibraryState::ended:
            return CUDA_ERROR_DEINITIALIZED;
        default:
            return CUDA_ERROR_NOT_INITIALIZED;
    }
}

// For calls that come after the driver has ended, while the process exits: see fork_and_exit.cpp.
void late_call();

// Translates the exception in flight: std::bad_alloc is out of memory, the rest is our fault and is logged.
CUresult report_exception(const char* name) noexcept;

// For calls that nothing serves yet: returns CUDA_ERROR_NOT_SUPPORTED and writes a line to stderr, once per name.
int unsupported(const char* name);

// For the few functions that answer before cuInit.
template <class Call>
CUresult guarded_always(const char* name, Call&& call) noexcept try {
    return call();
} catch (...) {
    return report_exception(name);
}

template <class Call>
CUresult guarded(const char* name, Call&& call) noexcept {
    if (auto refused = refusal(); refused != CUDA_SUCCESS) {
        if (refused == CUDA_ERROR_DEINITIALIZED) late_call();
        return refused;
    }
    stats().calls.fetch_add(1, std::memory_order_relaxed);
    return guarded_always(name, call);
}

}  // namespace tnr::cuda
