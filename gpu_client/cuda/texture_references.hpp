// Texture and surface references: variables of modules that programs of before CUDA 12 bind to arrays and memory.
#pragma once

#include "gpu_client/cuda/arrays.hpp"

namespace tnr::cuda {

struct TextureReference {
    uint64_t number = 0;
    uint64_t handle = 0;
    bool own = false;                              // made by the program, of no module
    std::atomic<uint64_t> array{0}, mipmapped{0};  // handles of what it is bound to
};
struct SurfaceReference {
    uint64_t number = 0;
    uint64_t handle = 0;
    std::atomic<uint64_t> array{0};
};

using TextureReferences = HandleRegistry<TextureReference, HandleKind::texture_reference>;
using SurfaceReferences = HandleRegistry<SurfaceReference, HandleKind::surface_reference>;
TextureReferences& texture_references();
SurfaceReferences& surface_references();

inline CUresult number_of(CUtexref handle, uint64_t& number) {
    return number_of_object(texture_references().find(value_of(handle)), number);
}
inline CUresult number_of(CUsurfref handle, uint64_t& number) {
    return number_of_object(surface_references().find(value_of(handle)), number);
}

}  // namespace tnr::cuda
