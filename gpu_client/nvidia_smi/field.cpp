// See field.hpp.
#include "gpu_client/nvidia_smi/field.hpp"

namespace tnr::smi {

std::string mib(unsigned long long bytes) {
    return std::to_string(bytes >> 20);
}

std::string missing(nvmlReturn_t why) {
    return why == NVML_ERROR_GPU_IS_LOST ? "[GPU is lost]" : not_available;
}

}  // namespace tnr::smi
