// Groups of fields of --query-gpu that have a file of their own; gpu_fields() has them all.
#pragma once

#include <vector>

#include "gpu_client/nvidia_smi/field.hpp"

namespace tnr::smi {

// How the GPU is set up.
std::vector<Field> mode_fields();
// Errors and repairs, and what slows the clocks down.
std::vector<Field> health_fields();
// What NVIDIA's tool has and no GPU behind a network tells. Scripts that ask for one get "[N/A]", as from a GPU without.
std::vector<Field> untold_fields();

}  // namespace tnr::smi
