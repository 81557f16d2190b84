// The host's own memory, which workers use beside that of their GPUs: staging, code, whatever their clients make them keep.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tnr::server {

// What a process holds that is its own: neither code nor files. 0 when it is gone.
uint64_t host_bytes_of(pid_t pid);

// What the workers of one claim may hold for each of its GPUs, on a node with this many, unless the operator says otherwise.
uint64_t host_bytes_per_gpu(size_t gpus);

}  // namespace tnr::server
