// Rectangles and boxes to copy, as CUDA describes them, as addresses and distances.
#pragma once

#include "gpu_client/cuda/arrays.hpp"

namespace tnr::cuda {

struct BoxSide {
    bool on_device = false;
    uint64_t address = 0;  // of the first byte that is copied
    uint64_t pitch = 0;
    uint64_t slice_bytes = 0;      // from one slice to the next
    const Array* array = nullptr;  // where it begins there, instead:
    uint64_t x_bytes = 0, y = 0, z = 0;
};

struct Box {
    BoxSide to, from;
    uint64_t row_bytes = 0, rows = 0, slices = 1;
    bool of_peers = false;  // contexts are named for both sides
};

// The whole must lie within an array that is one of its sides.
CUresult read_2d(const CUDA_MEMCPY2D* in, Box& box);
CUresult read_3d(const CUDA_MEMCPY3D* in, Box& box);
CUresult read_3d(const CUDA_MEMCPY3D_PEER* in, Box& box);  // which contexts aside
// One row of the box, `offset` bytes into an array's first.
CUresult read_array_line(CUarray handle, size_t offset, Box& box, BoxSide& side);
// The program's memory or the GPU's, or what both share.
BoxSide line_side(CUdeviceptr address, size_t bytes);
// Copies it. With `wait`, as copies.hpp says.
CUresult copy_box(Box box, CUstream stream, bool wait);
// A box whose slices lie behind each other on both sides becomes one rectangle.
void flatten(Box& box);

}  // namespace tnr::cuda
