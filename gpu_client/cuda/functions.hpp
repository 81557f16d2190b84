// Kernels: what the worker told of them, and what the program has changed since.
#pragma once

#include <span>

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// cuFuncSetAttribute or cuKernelSetAttribute has succeeded; `payload` is what was sent.
void note_attribute_change(Function& function, uint16_t op, std::span<const std::byte> payload);
// Occupancy and the like depend on attributes: ask again.
void forget_cached_answers();

}  // namespace tnr::cuda
