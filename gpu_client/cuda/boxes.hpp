// Rectangles and boxes to copy, as CUDA describes them, as addresses and distances.
#pragma once

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

struct BoxSide {
    bool on_device = false;
    uint64_t address = 0;  // of the first byte that is copied
    uint64_t pitch = 0;
    uint64_t slice_bytes = 0;  // from one slice to the next
};

struct Box {
    BoxSide to, from;
    uint64_t row_bytes = 0, rows = 0, slices = 1;
};

CUresult read_2d(const CUDA_MEMCPY2D* in, Box& box);
CUresult read_3d(const CUDA_MEMCPY3D* in, Box& box);
// A box whose slices lie behind each other on both sides becomes one rectangle.
void flatten(Box& box);

}  // namespace tnr::cuda
