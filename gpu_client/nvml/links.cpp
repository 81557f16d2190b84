// What is between the memories of two GPUs: P2P, and the NVLinks it goes over. NCCL decides by this whether GPUs talk
// to each other directly; the other way, by memory of the host that running kernels poll, does not lead across a
// network.
//
// Emulated GPUs of a node are the same memory, so all works between them; each has one link, to a switch.
#include "gpu_client/nvml/links.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

using namespace tnr;
using namespace tnr::nvml;

namespace tnr::nvml {

std::map<unsigned, std::string> links_of(const GpuFacts& gpu) {
    return gpu.links.empty() && is_emulated(gpu) ? std::map<unsigned, std::string>{{0, ""}} : gpu.links;
}

std::optional<int64_t> link_field(const GpuFacts& gpu, unsigned field, unsigned scope) {
    auto links = links_of(gpu);
    if (links.empty()) return std::nullopt;
    auto leads_to_switch = [](auto& link) { return link.second.empty(); };
    switch (field) {
        case NVML_FI_DEV_NVLINK_LINK_COUNT:
            return links.size();
        case NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT:
            return std::count_if(links.begin(), links.end(), leads_to_switch);
        case NVML_FI_DEV_NVLINK_GET_STATE:
            return links.contains(scope) ? std::optional<int64_t>(NVML_FEATURE_ENABLED) : std::nullopt;
        default:
            return std::nullopt;
    }
}

}  // namespace tnr::nvml

static bool works_between(const GpuFacts& one, const GpuFacts& other, unsigned index) {
    auto found = one.peers.find(other.uuid);
    if (found != one.peers.end()) return found->second >> index & 1;
    return one.uuid != other.uuid && is_emulated(one) && is_emulated(other);
}

NVML_EXPORT nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t index,
                                   nvmlGpuP2PStatus_t* status) {
    if (!status || index >= NVML_P2P_CAPS_INDEX_UNKNOWN) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(one, [&](const GpuFacts& first, unsigned) {
        return with_device(other, [&](const GpuFacts& second, unsigned) {
            *status = works_between(first, second, index) ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
            return NVML_SUCCESS;
        });
    });
}

// Runs `use(gpu, where the link leads)`; a link that is not up leads nowhere.
template <class Use>
static nvmlReturn_t with_link(nvmlDevice_t device, unsigned link, Use&& use) {
    if (link >= NVML_NVLINK_MAX_LINKS) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        auto links = links_of(gpu);
        auto found = links.find(link);
        return found == links.end() ? NVML_ERROR_NOT_SUPPORTED : use(found->second);
    });
}

NVML_EXPORT nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t* active) {
    if (!active) return NVML_ERROR_INVALID_ARGUMENT;
    return with_link(device, link, [&](const std::string&) {
        *active = NVML_FEATURE_ENABLED;
        return NVML_SUCCESS;
    });
}

// Between GPUs all works; memory of the host is not reached by a link.
NVML_EXPORT nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned link, nvmlNvLinkCapability_t capability,
                                          unsigned* has) {
    if (!has || capability >= NVML_NVLINK_CAP_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    return with_link(device, link, [&](const std::string&) {
        *has = capability == NVML_NVLINK_CAP_P2P_SUPPORTED || capability == NVML_NVLINK_CAP_P2P_ATOMICS ||
               capability == NVML_NVLINK_CAP_VALID;
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, nvmlIntNvLinkDeviceType_t* type) {
    if (!type) return NVML_ERROR_INVALID_ARGUMENT;
    return with_link(device, link, [&](const std::string& remote) {
        *type = remote.empty() ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
        return NVML_SUCCESS;
    });
}

// A switch that is out of sight has no address. NCCL knows this text, from virtual machines.
static void fill_out_of_sight(nvmlPciInfo_t& pci) {
    constexpr const char* nowhere = "FFFFFFF:FFFF:FF";
    pci = {};
    pci.domain = pci.bus = pci.device = ~0u;
    (void)give_text(nowhere, pci.busId, sizeof pci.busId);
    (void)give_text(nowhere, pci.busIdLegacy, sizeof pci.busIdLegacy);
}

NVML_EXPORT nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t* pci) {
    if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
    return with_link(device, link, [&](const std::string& remote) {
        fill_out_of_sight(*pci);
        auto now = snapshot();
        for (unsigned i = 0; now && !remote.empty() && i < now->devices.size(); ++i)
            if (now->devices[i].uuid == remote) return nvmlDeviceGetPciInfo_v3(handle_of(i), pci);
        return NVML_SUCCESS;
    });
}

// The form of before version 2 ends with pciSubSystemId. NCCL asks for this one.
NVML_EXPORT nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned link, nvmlPciInfo_t* pci) {
    if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlPciInfo_t now;
    auto result = nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &now);
    if (result == NVML_SUCCESS) std::memcpy(pci, &now, offsetof(nvmlPciInfo_t, busId));
    return result;
}
