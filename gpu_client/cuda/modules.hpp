// Loading a module, for the export tables that offer it beside cuModuleLoadData.
#pragma once

#include "gpu_client/cuda/driver_api.hpp"

namespace tnr::cuda {

CUresult load_module_data(CUmodule* out, const void* image);

}  // namespace tnr::cuda
