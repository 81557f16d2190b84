// How GPUs are connected to each other and to this machine. Seen from here each hangs on the network: as far from the
// others as two devices of a system can be. What is between their memories (P2P, NVLinks) is in links.cpp.
#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"

using namespace tnr;
using namespace tnr::nvml;

template <class Use>
static nvmlReturn_t with_two(nvmlDevice_t one, nvmlDevice_t other, Use&& use) {
    return with_device(one, [&](const GpuFacts&, unsigned first) {
        return with_device(other, [&](const GpuFacts&, unsigned second) { return use(first == second); });
    });
}

NVML_EXPORT nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuTopologyLevel_t* level) {
    if (!level) return NVML_ERROR_INVALID_ARGUMENT;
    return with_two(one, other, [&](bool same) {
        *level = same ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_SYSTEM;
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int* same_board) {
    if (!same_board) return NVML_ERROR_INVALID_ARGUMENT;
    return with_two(one, other, [&](bool same) {
        *same_board = same;
        return NVML_SUCCESS;
    });
}

// Handles of all GPUs but the one at `except`.
static std::vector<nvmlDevice_t> all_but(size_t except) {
    std::vector<nvmlDevice_t> handles;
    auto now = snapshot();
    for (unsigned i = 0; now && i < now->devices.size(); ++i)
        if (i != except) handles.push_back(handle_of(i));
    return handles;
}

// Only a null array asks for the count alone; too small a one gets what fits, as from NVIDIA's library.
static nvmlReturn_t give_handles(const std::vector<nvmlDevice_t>& handles, unsigned* count, nvmlDevice_t* out) {
    auto result = give_list(handles, count, out);
    return result == NVML_ERROR_INSUFFICIENT_SIZE ? NVML_SUCCESS : result;
}

NVML_EXPORT nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level, unsigned* count,
                                             nvmlDevice_t* others) {
    if (!count || level > NVML_TOPOLOGY_SYSTEM) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts&, unsigned index) {
        return give_handles(level == NVML_TOPOLOGY_SYSTEM ? all_but(index) : std::vector<nvmlDevice_t>(), count,
                            others);
    });
}

NVML_EXPORT nvmlSystemGetTopologyGpuSet(unsigned, unsigned* count, nvmlDevice_t* devices) {
    return with_device(handle_of(0), [&](const GpuFacts&, unsigned) {
        return give_handles(all_but(SIZE_MAX), count, devices);  // near every processor, as affinity.cpp says
    });
}

// Host interface cards belong to external S-class boxes of the past, units too.
NVML_EXPORT nvmlSystemGetHicVersion(unsigned* count, nvmlHwbcEntry_t*) {
    return constant(handle_of(0), count, 0u);
}
NVML_EXPORT nvmlUnitGetCount(unsigned* count) {
    return constant(handle_of(0), count, 0u);
}

// No chip-to-chip link and no memory that host and GPU address together reach across a network.
NVML_EXPORT nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_v1_t* mode) {
    return constant(device, mode, nvmlC2cModeInfo_v1_t{});
}
NVML_EXPORT nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t* mode) {
    if (!mode) return NVML_ERROR_INVALID_ARGUMENT;
    if (mode->version != nvmlDeviceAddressingMode_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return constant(device, &mode->value, static_cast<unsigned>(NVML_DEVICE_ADDRESSING_MODE_NONE));
}
