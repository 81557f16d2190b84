// Texture and surface objects.
#pragma once

#include "gpu_client/cuda/objects.hpp"

namespace tnr::cuda {

// The context is gone, and they with it.
void forget_textures_of(const Context& context);

}  // namespace tnr::cuda
