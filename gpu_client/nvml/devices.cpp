// Which GPUs there are, and who they are.
#include <cstring>

#include "gpu_client/nvml/export.hpp"
#include "gpu_client/nvml/library.hpp"

using namespace tnr;
using namespace tnr::nvml;

NVML_EXPORT nvmlDeviceGetCount_v2(unsigned* count) {
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    auto now = snapshot();
    if (!now) return NVML_ERROR_UNINITIALIZED;
    *count = static_cast<unsigned>(now->devices.size());
    return NVML_SUCCESS;
}
NVML_EXPORT nvmlDeviceGetCount(unsigned* count) {
    return nvmlDeviceGetCount_v2(count);
}

// The first GPU for which `matches` holds.
template <class Matches>
static nvmlReturn_t find(nvmlDevice_t* device, Matches&& matches) noexcept try {
    if (!device) return NVML_ERROR_INVALID_ARGUMENT;
    auto now = snapshot();
    if (!now) return NVML_ERROR_UNINITIALIZED;
    for (unsigned i = 0; i < now->devices.size(); ++i)
        if (matches(now->devices[i], i)) {
            *device = handle_of(i);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
} catch (...) {
    return NVML_ERROR_UNKNOWN;
}

NVML_EXPORT nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
    auto result = find(device, [&](const GpuFacts&, unsigned i) { return i == index; });
    return result == NVML_ERROR_NOT_FOUND ? NVML_ERROR_INVALID_ARGUMENT : result;
}
NVML_EXPORT nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

NVML_EXPORT nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
    if (!uuid) return NVML_ERROR_INVALID_ARGUMENT;
    return find(device, [&](const GpuFacts& gpu, unsigned) { return uuid_text(gpu.uuid) == uuid; });
}

NVML_EXPORT nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* device) {
    unsigned domain = 0, bus = 0, number = 0;
    bool sound = bus_id && (std::sscanf(bus_id, "%x:%x:%x", &domain, &bus, &number) == 3 ||
                            std::sscanf(bus_id, "%x:%x", &bus, &number) == 2);
    if (!sound) return NVML_ERROR_INVALID_ARGUMENT;
    return find(device, [&](const GpuFacts& gpu, unsigned) {
        return gpu.pci_domain == static_cast<int>(domain) && gpu.pci_bus == static_cast<int>(bus) &&
               gpu.pci_device == static_cast<int>(number);
    });
}
NVML_EXPORT nvmlDeviceGetHandleByPciBusId(const char* bus_id, nvmlDevice_t* device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

NVML_EXPORT nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
    if (!index) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts&, unsigned i) {
        *index = i;
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned* minor) {
    return nvmlDeviceGetIndex(device, minor);
}

NVML_EXPORT nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned length) {
    return with_device(device, [&](const GpuFacts& gpu, unsigned) { return give_text(gpu.name, name, length); });
}

NVML_EXPORT nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
    return with_device(device,
                       [&](const GpuFacts& gpu, unsigned) { return give_text(uuid_text(gpu.uuid), uuid, length); });
}

static void fill(nvmlPciInfo_t& pci, const GpuFacts& gpu) {
    pci = {};
    pci.domain = static_cast<unsigned>(gpu.pci_domain);
    pci.bus = static_cast<unsigned>(gpu.pci_bus);
    pci.device = static_cast<unsigned>(gpu.pci_device);
    pci.pciDeviceId = static_cast<unsigned>(value_of(gpu, gpu_value::pci_device_id).value_or(0));
    pci.pciSubSystemId = static_cast<unsigned>(value_of(gpu, gpu_value::pci_subsystem_id).value_or(0));
    (void)give_text(bus_id_text(gpu, "%08X:%02X:%02X.0"), pci.busId, sizeof pci.busId);
    (void)give_text(bus_id_text(gpu, "%04X:%02X:%02X.0"), pci.busIdLegacy, sizeof pci.busIdLegacy);
}

NVML_EXPORT nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
    if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        fill(*pci, gpu);
        return NVML_SUCCESS;
    });
}

// The older structure ends before `busId`; its first field is the legacy one.
static nvmlReturn_t old_pci_info(nvmlDevice_t device, nvmlPciInfo_t* pci) {
    if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        nvmlPciInfo_t now;
        fill(now, gpu);
        std::memcpy(pci, &now, offsetof(nvmlPciInfo_t, busId));
        return NVML_SUCCESS;
    });
}
NVML_EXPORT nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
    return old_pci_info(device, pci);
}
NVML_EXPORT nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
    return old_pci_info(device, pci);
}

NVML_EXPORT nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* pci) {
    if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
    if (pci->version != nvmlPciInfoExt_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    constexpr unsigned display_controller = 3, controller_3d = 2;  // PCI's codes for a GPU without a display
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        nvmlPciInfo_t usual;
        fill(usual, gpu);
        *pci = {nvmlPciInfoExt_v1,  usual.domain,  usual.bus, usual.device, usual.pciDeviceId, usual.pciSubSystemId,
                display_controller, controller_3d, {}};
        std::memcpy(pci->busId, usual.busId, sizeof pci->busId);
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t* type) {
    if (!type) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts&, unsigned) {
        *type = NVML_BUS_TYPE_PCIE;
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
    if (!major || !minor) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        auto known_major = value_of(gpu, gpu_value::compute_major);
        auto known_minor = value_of(gpu, gpu_value::compute_minor);
        if (!known_major || !known_minor) return NVML_ERROR_NOT_SUPPORTED;
        *major = static_cast<int>(*known_major);
        *minor = static_cast<int>(*known_minor);
        return NVML_SUCCESS;
    });
}

NVML_EXPORT nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t* architecture) {
    if (!architecture) return NVML_ERROR_INVALID_ARGUMENT;
    int major = 0, minor = 0;
    auto result = nvmlDeviceGetCudaComputeCapability(device, &major, &minor);
    if (result != NVML_SUCCESS) return result;
    switch (major) {
        case 7:
            *architecture = minor == 5 ? NVML_DEVICE_ARCH_TURING : NVML_DEVICE_ARCH_VOLTA;
            break;
        case 8:
            *architecture = minor == 9 ? NVML_DEVICE_ARCH_ADA : NVML_DEVICE_ARCH_AMPERE;
            break;
        case 9:
            *architecture = NVML_DEVICE_ARCH_HOPPER;
            break;
        case 10:
        case 12:
            *architecture = NVML_DEVICE_ARCH_BLACKWELL;
            break;
        default:
            *architecture = NVML_DEVICE_ARCH_UNKNOWN;
    }
    return NVML_SUCCESS;
}
