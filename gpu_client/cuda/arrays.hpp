// CUDA arrays and mipmapped arrays, as the program names them. What they look like is known here, so copies are checked
// before they are sent.
#pragma once

#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/protocol/array_charge.hpp"

namespace tnr::cuda {

struct Array {
    uint64_t number = 0;
    uint64_t handle = 0;
    uint64_t context = 0;    // handle
    uint64_t mipmapped = 0;  // handle of what it is a level of
    uint64_t charged_bytes = 0;
    CUDA_ARRAY3D_DESCRIPTOR described{};
    wire::ArrayUnit unit{};
};

struct MipmappedArray {
    uint64_t number = 0;
    uint64_t handle = 0;
    uint64_t context = 0;
    uint64_t charged_bytes = 0;
    CUDA_ARRAY3D_DESCRIPTOR described{};
    std::vector<uint64_t> levels;  // handles
};

using Arrays = HandleRegistry<Array, HandleKind::array>;
using MipmappedArrays = HandleRegistry<MipmappedArray, HandleKind::mipmapped_array>;
Arrays& arrays();
MipmappedArrays& mipmapped_arrays();

inline Array* find_array(CUarray handle) {
    return arrays().find(value_of(handle));
}
inline MipmappedArray* find_mipmapped_array(CUmipmappedArray handle) {
    return mipmapped_arrays().find(value_of(handle));
}
inline CUresult number_of(CUarray handle, uint64_t& number) {
    return number_of_object(find_array(handle), number);
}
inline CUresult number_of(CUmipmappedArray handle, uint64_t& number) {
    return number_of_object(find_mipmapped_array(handle), number);
}

// What the session was charged for an array of the context.
void return_array_grant(const Context& context, uint64_t bytes);
// A mipmap's levels go with it.
void forget_levels(const MipmappedArray& mipmapped);
// The context is gone, and they with it.
void forget_arrays_of(const Context& context);

}  // namespace tnr::cuda
