// The part of CUDA's runtime that kernels may call, beside printf, malloc and assert: launches of kernels, copies and
// fills in the order of a stream, memory, streams, events, and the thread's last error.
#pragma once

#include "gpu_server/emulated_gpu/ptx/machine.hpp"

namespace tnr::ptx {

// `name` is without its prefix, "__cudaCDP2" or "cuda".
Builtin device_runtime_named(std::string_view name);
void call_device_runtime(Warp& warp, uint32_t lane, const Call& call);

}  // namespace tnr::ptx
