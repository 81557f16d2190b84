// What a bare `nvidia-smi` prints.
#pragma once

#include <string>

#include "gpu_client/nvidia_smi/gpu.hpp"

namespace tnr::smi {

std::string table(const System& system);
std::string list(const System& system);  // nvidia-smi -L

}  // namespace tnr::smi
