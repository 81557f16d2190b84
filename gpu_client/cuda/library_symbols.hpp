// Global variables of loaded code, by name.
#pragma once

#include "gpu_client/cuda/libraries.hpp"

namespace tnr::cuda {

CUresult get_global(Library& library, const char* name, uint64_t& address, uint64_t& bytes);
// A managed variable, which the program finds at its address. CUDA_ERROR_NOT_FOUND if there is none of that name.
CUresult get_managed(Library& library, const char* name, uint64_t& address, uint64_t& bytes);

}  // namespace tnr::cuda
