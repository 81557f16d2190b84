// See texture_references.hpp.
#include "gpu_client/cuda/texture_references.hpp"

namespace tnr::cuda {

TextureReferences& texture_references() {
    static auto* all = new TextureReferences;
    return *all;
}
SurfaceReferences& surface_references() {
    static auto* all = new SurfaceReferences;
    return *all;
}

}  // namespace tnr::cuda
