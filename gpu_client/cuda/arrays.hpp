// CUDA arrays and mipmapped arrays, as the program names them. What they look like is known here, so copies are checked
// before they are sent.
#pragma once

#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/protocol/tiled_arrays.hpp"

namespace tnr::cuda {

// What the tiles of a sparse array, or of one that is mapped later, have for their memory. Each run holds the handle of it, as
// a mapping does. Guarded by Mappings::mutex, which clang cannot see from here.
struct Tiled {
    wire::TiledShape shape;
    wire::TileBook<std::shared_ptr<const uint64_t>> book;
    bool gone = false;  // the array is destroyed
};

struct Array {
    uint64_t number = 0;
    uint64_t handle = 0;
    uint64_t context = 0;  // handle
    bool part = false;     // a level or a plane of another, with which it goes
    uint64_t charged_bytes = 0;
    CUDA_ARRAY3D_DESCRIPTOR described{};
    wire::ArrayUnit unit{};
    std::shared_ptr<Tiled> tiled = {};  // null: an ordinary array, or a part of another
    std::vector<uint64_t> planes = {};  // handles
};

struct MipmappedArray {
    uint64_t number = 0;
    uint64_t handle = 0;
    uint64_t context = 0;
    uint64_t charged_bytes = 0;
    CUDA_ARRAY3D_DESCRIPTOR described{};
    std::vector<uint64_t> levels;       // handles
    std::shared_ptr<Tiled> tiled = {};  // null: an ordinary one
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
// A mipmap's levels go with it, and an array's planes.
void forget_parts(const std::vector<uint64_t>& handles);
// The memory of its tiles is not its any more: the array has been destroyed. Null does nothing.
void forget_tiles(const std::shared_ptr<Tiled>& tiled);
// The context is gone, and they with it.
void forget_arrays_of(const Context& context);

}  // namespace tnr::cuda
