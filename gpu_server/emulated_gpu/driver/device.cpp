// What programs ask about devices.
#include "gpu_server/emulated_gpu/driver/device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "gpu_server/emulated_gpu/driver/state.hpp"

using namespace tnr::emulated;

namespace {

template <class Call>
CUresult on_device(CUdevice ordinal, const void* out, Call&& call) {
    return initialized([&]() -> CUresult {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        Device* device = device_of(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        return call(*device);
    });
}

}  // namespace

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    return on_device(ordinal, device, [&](Device& d) {
        *device = d.ordinal;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetCount(int* count) {
    return initialized([&]() -> CUresult {
        if (!count) return CUDA_ERROR_INVALID_VALUE;
        *count = static_cast<int>(driver().devices.size());
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
    return on_device(ordinal, name, [&](Device& d) -> CUresult {
        if (length <= 0) return CUDA_ERROR_INVALID_VALUE;
        snprintf(name, static_cast<size_t>(length), "%s", d.type->name);
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
    return on_device(ordinal, bytes, [&](Device& d) {
        *bytes = d.memory_total;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
    return on_device(ordinal, uuid, [&](Device& d) {
        *uuid = d.uuid;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
    return cuDeviceGetUuid_v2(uuid, ordinal);
}

// A Windows notion.
CUresult cuDeviceGetLuid(char* luid, unsigned*, CUdevice ordinal) {
    return on_device(ordinal, luid, [](Device&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
    return on_device(ordinal, text, [&](Device& d) -> CUresult {
        char name[sizeof "0000:00:00.0"];
        int size = snprintf(name, sizeof name, "0000:%02X:00.0", static_cast<unsigned>(d.pci_bus) & 0xff);
        if (length <= size) return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(text, name, sizeof name);
        return CUDA_SUCCESS;
    });
}

// "domain:bus:device.function", "domain:bus:device" or "bus:device.function", all hexadecimal.
CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
    return initialized([&]() -> CUresult {
        if (!device || !text) return CUDA_ERROR_INVALID_VALUE;
        unsigned domain = 0, bus = 0, slot = 0, function = 0;
        if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
            domain = 0;
            if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) != 3) return CUDA_ERROR_INVALID_VALUE;
        }
        for (auto& d : driver().devices) {
            if (domain != 0 || slot != 0 || function != 0 || bus != static_cast<unsigned>(d->pci_bus)) continue;
            *device = d->ordinal;
            return CUDA_SUCCESS;
        }
        return CUDA_ERROR_INVALID_DEVICE;
    });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
    return on_device(ordinal, major, [&](Device&) -> CUresult {
        if (!minor) return CUDA_ERROR_INVALID_VALUE;
        *major = compute_major;
        *minor = compute_minor;
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice ordinal) {
    return on_device(ordinal, properties, [&](Device& d) {
        *properties = CUdevprop{threads_per_block_max,
                                {threads_per_block_max, threads_per_block_max, block_z_max},
                                {grid_x_max, grid_yz_max, grid_yz_max},
                                shared_bytes_default,
                                64 << 10,
                                warp_threads,
                                2147483647,
                                registers_per_block,
                                d.type->clock_khz,
                                512};
        return CUDA_SUCCESS;
    });
}

// Splitting a GPU by multiprocessors needs MPS, which does not exist here.
CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type, CUdevice ordinal) {
    return on_device(ordinal, supported, [&](Device&) -> CUresult {
        if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
        *supported = 0;
        return CUDA_SUCCESS;
    });
}

// All devices are the same host memory, so all are peers.
CUresult cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
    return on_device(ordinal, can, [&](Device&) -> CUresult {
        if (!device_of(peer)) return CUDA_ERROR_INVALID_DEVICE;
        *can = ordinal != peer;
        return CUDA_SUCCESS;
    });
}

// All memory is the host's, so what kernels can do in their own device's they can do in another's.
static unsigned atomic_capabilities(CUatomicOperation operation) {
    constexpr unsigned both = CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
    constexpr unsigned reduced = CU_ATOMIC_CAPABILITY_REDUCTION | CU_ATOMIC_CAPABILITY_UNSIGNED;
    switch (operation) {
        case CU_ATOMIC_OPERATION_INTEGER_INCREMENT:
        case CU_ATOMIC_OPERATION_INTEGER_DECREMENT:
            return reduced | CU_ATOMIC_CAPABILITY_SCALAR_32;
        case CU_ATOMIC_OPERATION_EXCHANGE:
        case CU_ATOMIC_OPERATION_CAS:
            return CU_ATOMIC_CAPABILITY_UNSIGNED | both;
        case CU_ATOMIC_OPERATION_FLOAT_ADD:
            return CU_ATOMIC_CAPABILITY_REDUCTION | both;
        case CU_ATOMIC_OPERATION_FLOAT_MIN:
        case CU_ATOMIC_OPERATION_FLOAT_MAX:
            return 0;
        default:
            return reduced | CU_ATOMIC_CAPABILITY_SIGNED | both;
    }
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned* capabilities, const CUatomicOperation* operations, unsigned count,
                                          CUdevice source, CUdevice target) {
    return initialized([&]() -> CUresult {
        if (!capabilities || !operations || count == 0) return CUDA_ERROR_INVALID_VALUE;
        if (!device_of(source) || !device_of(target) || source == target) return CUDA_ERROR_INVALID_DEVICE;
        for (unsigned i = 0; i < count; ++i)
            if (operations[i] < 0 || operations[i] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
        std::transform(operations, operations + count, capabilities, atomic_capabilities);
        return CUDA_SUCCESS;
    });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice target) {
    return on_device(source, value, [&](Device&) -> CUresult {
        if (!device_of(target) || source == target) return CUDA_ERROR_INVALID_DEVICE;
        switch (attribute) {
            case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
                *value = 0;
                return CUDA_SUCCESS;
            case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
            case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
                *value = 1;
                return CUDA_SUCCESS;
            case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
            case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
                *value = 0;
                return CUDA_SUCCESS;
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    });
}
