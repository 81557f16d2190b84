// How many blocks of a kernel fit on a multiprocessor.
#pragma once

#include "gpu_server/emulated_gpu/driver/module.hpp"

namespace tnr::emulated {

// 0 when not even one does.
int blocks_per_multiprocessor_of(const Function& function, uint64_t block_threads, uint64_t dynamic_shared_bytes);

}  // namespace tnr::emulated
