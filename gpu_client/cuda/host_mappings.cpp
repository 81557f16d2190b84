// See host_mappings.hpp.
#include "gpu_client/cuda/host_mappings.hpp"

#include "api_client/base/numa.hpp"
#include "gpu_client/cuda/shared_pages.hpp"

namespace tnr::cuda {

CUresult check_host_memory(const CUmemAllocationProp& properties) {
    const bool numbered = properties.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if (numbered && !is_numa_node(properties.location.id)) return CUDA_ERROR_INVALID_VALUE;
    const bool plain = properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE && properties.allocFlags.usage == 0;
    return plain ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult begin_host_mapping(Context& context, uint64_t address, uint64_t bytes) {
    return share_memory(context, {SharedKind::created, address, address, bytes, 0});
}

void end_host_mapping(uint64_t address) {
    give_to_gpu();
    (void)unshare_memory(address, false);
}

}  // namespace tnr::cuda
