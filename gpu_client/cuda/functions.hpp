// Kernels: what the worker said about them, and what the program has changed since.
#pragma once

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// Notes that a call which the table marks `sets_attribute` has succeeded.
void note_attribute_change(CUfunction handle, int attribute, int value);
inline void note_attribute_change(CUkernel handle, int attribute, int value) {
    note_attribute_change(handle_of<CUfunction>(value_of(handle)), attribute, value);
}

}  // namespace tnr::cuda
