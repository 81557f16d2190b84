// From what a driver calls its GPUs to the short names by which users ask for them: "NVIDIA H100 80GB HBM3" is an h100.
#pragma once

#include <string>
#include <string_view>

namespace tnr::server {

// Never empty: a name of which nothing is left becomes "gpu". Letters, digits and '-' only.
std::string gpu_type(std::string_view device_name);

}  // namespace tnr::server
