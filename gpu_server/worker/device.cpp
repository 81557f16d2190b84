// See device.hpp.
#include "gpu_server/worker/device.hpp"

#include <algorithm>
#include <random>

#include "gpu_client/protocol/address_zone.hpp"
#include "gpu_server/worker/driver.hpp"

namespace tnr::worker {

// Addresses cost nothing until they are backed. Four times the memory leaves the client room to hold freed addresses
// back until the GPU has passed them, and to place large blocks between small ones. The minimum is for programs that
// reserve far more addresses than there is memory and fill them as they grow, as PyTorch's expandable segments do.
static constexpr uint64_t range_per_memory = 4;
static constexpr uint64_t range_bytes_min = uint64_t{1} << 40;

// How many random places are tried before the driver chooses. The client needs the same addresses in its own process:
// where a driver puts a range by itself, beside its libraries, a client often has its own, and must propose another
// place.
static constexpr int placement_tries = 8;

static Error failed(const char* what, CUresult result) {
    return Error{Error::Kind::internal, std::string(what) + " failed: " + name_of(result)};
}

static std::string hex(const CUuuid& uuid) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (auto byte : uuid.bytes) {
        text += digits[static_cast<unsigned char>(byte) >> 4];
        text += digits[static_cast<unsigned char>(byte) & 15];
    }
    return text;
}

static int attribute(const DeviceDescription& description, CUdevice_attribute id) {
    auto found = description.attributes.find(id);
    return found == description.attributes.end() ? 0 : found->second;
}

static Result<DeviceDescription> describe(CUdevice device) {
    DeviceDescription description;
    char name[256] = {};
    CUuuid uuid{};
    size_t memory = 0;
    if (auto result = driver().cuDeviceGetName(name, sizeof name, device); result != CUDA_SUCCESS)
        return failed("cuDeviceGetName", result);
    if (auto result = driver().cuDeviceGetUuid_v2(&uuid, device); result != CUDA_SUCCESS)
        return failed("cuDeviceGetUuid", result);
    if (auto result = driver().cuDeviceTotalMem_v2(&memory, device); result != CUDA_SUCCESS)
        return failed("cuDeviceTotalMem", result);
    description.name = name;
    description.uuid = hex(uuid);
    description.memory_bytes = memory;
    driver().cuDriverGetVersion(&description.driver_version);
    for (int id = 1; id < CU_DEVICE_ATTRIBUTE_MAX; ++id) {
        int value = 0;
        auto known = static_cast<CUdevice_attribute>(id);
        if (driver().cuDeviceGetAttribute(&value, known, device) == CUDA_SUCCESS) description.attributes[id] = value;
    }
    description.pci_domain = attribute(description, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
    description.pci_bus = attribute(description, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
    description.pci_device = attribute(description, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    return description;
}

static CUmemAllocationProp memory_on(CUdevice device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return properties;
}

static uint64_t limit_of_range(const DeviceDescription& description) {
    return std::max(range_bytes_min, description.memory_bytes * range_per_memory);
}

// A driver takes the address as a hint, so we check where it has put the range.
static CUresult reserve_at(uint64_t wanted, uint64_t bytes) {
    CUdeviceptr address = 0;
    auto result = driver().cuMemAddressReserve(&address, bytes, 0, wanted, 0);
    if (result != CUDA_SUCCESS || address == wanted) return result;
    driver().cuMemAddressFree(address, bytes);
    return CUDA_ERROR_ALREADY_MAPPED;
}

static CUresult reserve_somewhere(uint64_t bytes, uint64_t granularity, uint64_t& address) {
    static std::random_device random;
    constexpr uint64_t room = wire::address_zone_end - wire::address_zone_begin;
    for (int i = 0; i < placement_tries && bytes < room; ++i) {
        const uint64_t places = (room - bytes) / wire::address_alignment;
        address = wire::address_zone_begin + (uint64_t{random()} << 32 | random()) % places * wire::address_alignment;
        if (reserve_at(address, bytes) == CUDA_SUCCESS) return CUDA_SUCCESS;
    }
    CUdeviceptr anywhere = 0;
    auto result = driver().cuMemAddressReserve(&anywhere, bytes, granularity, 0, 0);
    address = anywhere;
    return result;
}

CUresult move_range(Device& device, uint64_t address, uint64_t bytes) {
    auto& description = device.description;
    bool sound = bytes != 0 && bytes <= limit_of_range(description) && bytes % description.granularity_bytes == 0 &&
                 address != 0 && address % description.granularity_bytes == 0;
    if (!sound) return CUDA_ERROR_INVALID_VALUE;
    if (auto result = reserve_at(address, bytes); result != CUDA_SUCCESS) return result;
    driver().cuMemAddressFree(description.range_address, description.range_bytes);
    description.range_address = address;
    description.range_bytes = bytes;
    return CUDA_SUCCESS;
}

static Result<> reserve_range(Device& device) {
    auto& description = device.description;
    auto properties = memory_on(device.handle);
    size_t granularity = 0;
    if (auto result =
            driver().cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
        result != CUDA_SUCCESS)
        return failed("cuMemGetAllocationGranularity", result);
    description.granularity_bytes = granularity;
    uint64_t address = 0;
    auto result = CUDA_ERROR_OUT_OF_MEMORY;
    auto bytes = limit_of_range(description);
    // Where addresses are scarce (several GPUs, sanitizers) a smaller range still serves.
    for (; result == CUDA_ERROR_OUT_OF_MEMORY && bytes >= description.memory_bytes; bytes /= 2) {
        description.range_bytes = (bytes + granularity - 1) / granularity * granularity;
        result = reserve_somewhere(description.range_bytes, granularity, address);
    }
    if (result != CUDA_SUCCESS) return failed("cuMemAddressReserve", result);
    description.range_address = address;
    return Ok{};
}

static Result<Device> warm_device(int ordinal) {
    Device device;
    if (auto result = driver().cuDeviceGet(&device.handle, ordinal); result != CUDA_SUCCESS)
        return failed("cuDeviceGet", result);
    auto description = describe(device.handle);
    if (!description) return description.error();
    device.description = std::move(*description);
    if (auto result = driver().cuDevicePrimaryCtxRetain(&device.primary, device.handle); result != CUDA_SUCCESS)
        return failed("cuDevicePrimaryCtxRetain", result);
    driver().cuCtxSetCurrent(device.primary);
    if (auto reserved = reserve_range(device); !reserved) return reserved.error();
    return device;
}

Result<std::vector<Device>> warm_devices() {
    int count = 0;
    if (auto result = driver().cuDeviceGetCount(&count); result != CUDA_SUCCESS)
        return failed("cuDeviceGetCount", result);
    std::vector<Device> devices;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        auto device = warm_device(ordinal);
        if (!device) return device.error();
        devices.push_back(std::move(*device));
    }
    if (devices.empty()) return Error{Error::Kind::internal, "the driver shows no device"};
    return devices;
}

}  // namespace tnr::worker
