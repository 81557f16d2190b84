// cuda.h as the library that implements it must see it: every version of every function under its own ELF name, and
// with the types of the programs that load us. A cuX defined after including this header is tnr_cuX to the linker; the
// exported cuX is generated around it (watched_calls.hpp).
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>

#include "gpu_client/protocol/graphics_calls.h"
#pragma GCC visibility pop

#ifndef TNR_EXPORTED_CALLS  // for those that want the exported cuX: the generated file that defines it, and tests
#include "implementations.hpp"
#endif
