// cuda.h as the library that implements it must see it: every version of every function under its own ELF name, and
// visible to the programs that load us (everything else of ours is hidden).
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#pragma GCC visibility pop
