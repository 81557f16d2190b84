// What a bare `nvidia-smi` prints.
#pragma once

#include <string>

#include "gpu_client/nvidia_smi/gpu.hpp"

namespace tnr::smi {

std::string table(const System& system);
std::string list(const System& system);  // nvidia-smi -L
// The time, as the table begins with it: "Tue Nov 24 02:33:21 2026".
std::string now();

}  // namespace tnr::smi
