// See devices.hpp; and the calls that ask about devices.
#include "gpu_client/cuda/devices.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>

#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/cuda/pool.hpp"
#include "gpu_client/cuda/thread_state.hpp"
#include "gpu_client/protocol/gpu_facts.hpp"

namespace tnr::cuda {

static std::vector<Device*>& device_list() {
    static auto* list = new std::vector<Device*>;
    return *list;
}

Turn& primary_contexts_turn() {
    static auto* turn = new Turn;
    return *turn;
}

const std::vector<Device*>& devices() {
    return device_list();
}

Device* find_device(CUdevice ordinal) {
    ++lookups.devices;
    auto& all = device_list();
    return ordinal >= 0 && static_cast<size_t>(ordinal) < all.size() ? all[static_cast<size_t>(ordinal)] : nullptr;
}

bool Device::runs_ptx_only() const {
    return description.name.ends_with("(emulated)");
}

// What the GPU can do but we do not carry over the network (yet): a program that asks first takes another way.
static void withhold_unsupported(Device& device) {
    static constexpr int none[] = {
        CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
        CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
        CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
        CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1,
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1,
        CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
        CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
    };
    for (int id : none)
        if (device.known[id]) device.attributes[id] = 0;
    // Memory of the host is ours, and so are its pools. The server's NUMA nodes are not this machine's.
    static constexpr std::pair<int, int> own[] = {
        {CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0}};
    for (auto [id, value] : own) {
        device.attributes[id] = value;
        device.known[id] = true;
    }
    // The claim's processes give each other memory and events by our own means, which need descriptors of the driver's.
    bool shares = device.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
    for (int id : {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED})
        if (device.known[id]) device.attributes[id] = shares ? 1 : 0;
}

static Device* make_device(DeviceDescription description, int number) {
    auto* device = new Device;  // lives as long as the process
    device->number = number;
    for (auto [id, value] : description.attributes) {
        if (id <= 0 || id >= device_attributes_max) continue;
        device->attributes[id] = value;
        device->known[id] = true;
    }
    for (size_t i = 0; i < 16; ++i)
        device->uuid.bytes[i] = static_cast<char>(std::strtoul(description.uuid.substr(2 * i, 2).c_str(), nullptr, 16));
    device->description = std::move(description);
    withhold_unsupported(*device);
    return device;
}

// CUDA_VISIBLE_DEVICES: ordinals or beginnings of UUIDs, up to the first invalid entry.
static std::vector<Device*> visible(const std::vector<Device*>& all) {
    const char* wanted = std::getenv("CUDA_VISIBLE_DEVICES");
    if (!wanted) return all;
    std::vector<Device*> chosen;
    std::istringstream list(wanted);
    for (std::string item; std::getline(list, item, ',');) {
        item.erase(0, item.find_first_not_of(' '));
        Device* found = nullptr;
        for (auto* device : all) {
            bool named = item.starts_with("GPU-") ? uuid_text(device->description.uuid).starts_with(item)
                                                  : item == std::to_string(device->number);
            if (named && !found) found = device;
        }
        if (!found) break;
        if (std::find(chosen.begin(), chosen.end(), found) != chosen.end())
            return {};  // named twice: none, as CUDA does
        chosen.push_back(found);
    }
    return chosen;
}

static CUresult describe_once() {
    auto described = ask_for_devices();
    if (!described) {
        log_error(described.error());
        return CUDA_ERROR_NO_DEVICE;
    }
    std::vector<Device*> all;
    for (auto& description : *described)
        all.push_back(make_device(std::move(description), static_cast<int>(all.size())));
    device_list() = visible(all);
    int ordinal = 0;
    for (auto* device : device_list()) {
        device->ordinal = ordinal++;
        device->primary_context = contexts().create([&](Context& context, uint64_t index, uint64_t handle) {
            context.number = index + 1;
            context.handle = handle;
            context.id = index + 1;
            context.device = device->ordinal;
            context.primary = true;
        });
    }
    return device_list().empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult describe_devices() {
    static auto* once = new std::once_flag;
    static CUresult result = CUDA_ERROR_NO_DEVICE;
    std::call_once(*once, [] { result = describe_once(); });
    return result;
}

int driver_version() {
    int version = CUDA_VERSION;  // what this library implements; the GPU's driver may know less
    for (auto* device : device_list()) version = std::min(version, device->description.driver_version);
    return version;
}

}  // namespace tnr::cuda

using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuDriverGetVersion(int* version) {
    return guarded_always("cuDriverGetVersion", [&]() -> CUresult {
        if (!version) return CUDA_ERROR_INVALID_VALUE;
        // Asked before cuInit, so that is when we must know; a pool that cannot be reached is cuInit's to report.
        if (library_state != LibraryState::forked) (void)describe_devices();
        *version = driver_version();
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
    return guarded("cuDeviceGet", [&]() -> CUresult {
        if (!device) return CUDA_ERROR_INVALID_VALUE;
        if (!find_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
        *device = ordinal;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
    return guarded("cuDeviceGetCount", [&]() -> CUresult {
        if (!count) return CUDA_ERROR_INVALID_VALUE;
        *count = static_cast<int>(devices().size());
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice ordinal) {
    return guarded("cuDeviceGetName", [&]() -> CUresult {
        if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        std::snprintf(name, static_cast<size_t>(length), "%s", device->description.name.c_str());
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
    return guarded("cuDeviceGetUuid", [&]() -> CUresult {
        if (!uuid) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        *uuid = device->uuid;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
    return cuDeviceGetUuid_v2(uuid, ordinal);
}

CUresult CUDAAPI cuDeviceGetLuid(char*, unsigned int*, CUdevice) {
    return guarded("cuDeviceGetLuid", [] { return CUDA_ERROR_NOT_SUPPORTED; });  // a matter of Windows
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
    return guarded("cuDeviceTotalMem", [&]() -> CUresult {
        if (!bytes) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        *bytes = device->description.memory_bytes;
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceTotalMem(unsigned int* bytes, CUdevice ordinal) {
    size_t all = 0;
    auto result = cuDeviceTotalMem_v2(&all, ordinal);
    if (result == CUDA_SUCCESS && !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) *bytes = static_cast<unsigned>(std::min<size_t>(all, UINT32_MAX));
    return result;
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
    return guarded("cuDeviceGetAttribute", [&]() -> CUresult {
        if (!value) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        int id = attribute;
        if (id <= 0 || id >= device_attributes_max || !device->known[static_cast<size_t>(id)])
            return CUDA_ERROR_INVALID_VALUE;
        *value = device->attributes[id];
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
    return guarded("cuDeviceComputeCapability", [&]() -> CUresult {
        if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        *major = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        *minor = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceGetProperties(CUdevprop* out, CUdevice ordinal) {
    return guarded("cuDeviceGetProperties", [&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        out->maxThreadsPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        for (int i = 0; i < 3; ++i) {
            out->maxThreadsDim[i] = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
            out->maxGridSize[i] = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
        }
        out->sharedMemPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
        out->totalConstantMemory = device->attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
        out->SIMDWidth = device->attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
        out->memPitch = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
        out->regsPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
        out->clockRate = device->attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
        out->textureAlign = device->attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
    return guarded("cuDeviceGetPCIBusId", [&]() -> CUresult {
        if (!text || length <= 0) return CUDA_ERROR_INVALID_VALUE;
        auto* device = find_device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        const int needed = std::snprintf(
            text, static_cast<size_t>(length), "%04x:%02x:%02x.0", device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
            device->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
        return needed < length ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* out, const char* text) {
    return guarded("cuDeviceGetByPCIBusId", [&]() -> CUresult {
        if (!out || !text) return CUDA_ERROR_INVALID_VALUE;
        int domain = 0, bus = 0, slot = 0;
        bool read = std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3;
        if (!read) {
            domain = 0;
            read = std::sscanf(text, "%x:%x", &bus, &slot) == 2;
        }
        if (!read) return CUDA_ERROR_INVALID_VALUE;
        for (auto* device : devices()) {
            bool same = device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) == domain &&
                        device->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) == bus &&
                        device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) == slot;
            if (!same) continue;
            *out = device->ordinal;
            return CUDA_SUCCESS;
        }
        return CUDA_ERROR_INVALID_DEVICE;
    });
}

CUresult CUDAAPI cuDeviceGetExecAffinitySupport(int* support, CUexecAffinityType type, CUdevice ordinal) {
    return guarded("cuDeviceGetExecAffinitySupport", [&]() -> CUresult {
        if (!support || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX) return CUDA_ERROR_INVALID_VALUE;
        if (!find_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
        *support = 0;
        return CUDA_SUCCESS;
    });
}

// A kernel's atomics on the program's memory never reach it while the kernel runs: nothing can be promised.
CUresult CUDAAPI cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                                   unsigned int count, CUdevice ordinal) {
    return guarded("cuDeviceGetHostAtomicCapabilities", [&]() -> CUresult {
        if (!capabilities || !operations || count == 0) return CUDA_ERROR_INVALID_VALUE;
        if (!find_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
        std::fill(capabilities, capabilities + count, 0);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceGetNvSciSyncAttributes(void*, CUdevice, int) {
    return guarded("cuDeviceGetNvSciSyncAttributes", [] { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult CUDAAPI cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope) {
    return guarded("cuFlushGPUDirectRDMAWrites", [] { return CUDA_ERROR_NOT_SUPPORTED; });
}

}  // extern "C"
