// What devices say of themselves.
#include <cstring>
#include <set>

#include "gpu.hpp"

using namespace driver_api;

namespace {
int device_count() {
    int count = 0;
    CU_OK(cu.cuInit(0));
    CU_OK(cu.cuDeviceGetCount(&count));
    return count;
}
int attribute(CUdevice device, CUdevice_attribute which) {
    int value = -1;
    CU_OK(cu.cuDeviceGetAttribute(&value, which, device));
    return value;
}
}  // namespace

TEST_CASE("devices are numbered from zero and others are refused", "[device]") {
    int count = device_count();
    REQUIRE(count >= 1);
    CUdevice device = -1;
    for (int ordinal = 0; ordinal < count; ++ordinal) CU_OK(cu.cuDeviceGet(&device, ordinal));
    CU_CHECK(cu.cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuDeviceGet(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDeviceGetCount(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a device's name fits the caller's buffer", "[device]") {
    device_count();
    char name[256];
    std::memset(name, '?', sizeof(name));
    CU_OK(cu.cuDeviceGetName(name, sizeof(name), 0));
    CHECK(std::memchr(name, 0, sizeof(name)) != nullptr);
    CHECK(std::strlen(name) > 2);
    char part[8];
    std::memset(part, '?', sizeof(part));
    CU_OK(cu.cuDeviceGetName(part, 4, 0));
    CHECK(std::memcmp(part, name, 3) == 0);
    CHECK(std::memcmp(part + 4, "????", 4) == 0);
    CU_CHECK(cu.cuDeviceGetName(name, sizeof(name), 1000), CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("devices have memory, and an identity of their own", "[device]") {
    std::set<std::string> uuids, bus_ids;
    int count = device_count();
    for (int device = 0; device < count; ++device) {
        size_t bytes = 0;
        CU_OK(cu.cuDeviceTotalMem(&bytes, device));
        CHECK(bytes > (size_t{64} << 20));
        CUuuid uuid{}, again{};
        CU_OK(cu.cuDeviceGetUuid(&uuid, device));
        CU_OK(cu.cuDeviceGetUuid(&again, device));
        CHECK(std::memcmp(&uuid, &again, sizeof(uuid)) == 0);
        uuids.insert(std::string(uuid.bytes, sizeof(uuid.bytes)));
        char bus_id[32] = {};
        CU_OK(cu.cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), device));
        bus_ids.insert(bus_id);
    }
    CHECK(int(uuids.size()) == count);
    CHECK(uuids.count(std::string(16, '\0')) == 0);
    CHECK(int(bus_ids.size()) == count);
}

TEST_CASE("a PCI bus id leads back to its device and agrees with the attributes", "[device]") {
    device_count();
    char bus_id[32] = {};
    CU_OK(cu.cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0));
    unsigned domain = 0, bus = 0, slot = 0, function = 9;
    REQUIRE(std::sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4);
    CHECK(int(domain) == attribute(0, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
    CHECK(int(bus) == attribute(0, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
    CHECK(int(slot) == attribute(0, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    CUdevice device = -1;
    CU_OK(cu.cuDeviceGetByPCIBusId(&device, bus_id));
    CHECK(device == 0);
    CU_CHECK(cu.cuDeviceGetByPCIBusId(&device, "not a bus id"), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("attributes hang together", "[device]") {
    device_count();
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_WARP_SIZE) == 32);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 1024);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) == 1024);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) == 64);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) == 2147483647);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) == 65535);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) == 48 << 10);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) >= 48 << 10);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY) == 64 << 10);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 7);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) >= 1);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) == 1);
    // 0 across the network: kernels there cannot reach the program's memory. The cases tagged [mapped] ask it, too.
    int can_map = attribute(0, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
    CHECK((can_map == 0 || can_map == 1));
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) == 1);
    CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) >= 1024);
}

TEST_CASE("every attribute that cuda.h 12.0 knows is answered", "[device]") {
    device_count();
    for (int which = 1; which <= 127; ++which) {
        bool reserved = which == 92 || which == 93 || which == 94 || which == 122 || which == 123;
        if (reserved) continue;  // names for removed features
        int value = 0;
        INFO("attribute " << which);
        CU_CHECK(cu.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(which), 0), CUDA_SUCCESS);
    }
}

TEST_CASE("unknown attributes and devices are refused", "[device]") {
    device_count();
    int value = 0;
    CU_CHECK(cu.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(9999), 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_ERROR_INVALID_VALUE);
    CU_CHECK(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1000), CUDA_ERROR_INVALID_DEVICE);
    size_t bytes = 0;
    CU_CHECK(cu.cuDeviceTotalMem(&bytes, 1000), CUDA_ERROR_INVALID_DEVICE);
    CU_CHECK(cu.cuDeviceTotalMem(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the old ways of asking for properties agree with the attributes", "[device]") {
    device_count();
    int major = 0, minor = 0;
    CU_OK(cu.cuDeviceComputeCapability(&major, &minor, 0));
    CHECK(major == attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
    CHECK(minor == attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    CUdevprop properties{};
    CU_OK(cu.cuDeviceGetProperties(&properties, 0));
    CHECK(properties.maxThreadsPerBlock == 1024);
    CHECK(properties.SIMDWidth == 32);
    CHECK(properties.clockRate == attribute(0, CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
}
