// The few driver calls that our short-lived helpers (probe-gpus, wipe-gpu) need, loaded by path.
#pragma once

#include <cuda.h>

#include <string>

#include "api_client/base/result.hpp"

namespace tnr::server {

struct DriverCalls {
    decltype(&::cuInit) init;
    decltype(&::cuGetErrorName) error_name;
    decltype(&::cuDeviceGetCount) device_count;
    decltype(&::cuDeviceGet) device;
    decltype(&::cuDeviceGetName) device_name;
    decltype(&::cuDeviceGetUuid_v2) device_uuid;
    decltype(&::cuDeviceTotalMem_v2) total_memory;
    decltype(&::cuDeviceGetAttribute) attribute;
    decltype(&::cuDevicePrimaryCtxRetain) retain_context;
    decltype(&::cuCtxSetCurrent) set_context;
    decltype(&::cuMemGetInfo_v2) memory_info;
    decltype(&::cuMemAlloc_v2) allocate;
    decltype(&::cuMemFree_v2) free;
    decltype(&::cuMemsetD32_v2) fill;
    decltype(&::cuMemcpyDtoH_v2) copy_down;
    decltype(&::cuCtxSynchronize) synchronize;

    // "CUDA_ERROR_NO_DEVICE"
    std::string name_of(CUresult result) const;
};

// The library named by TNR_DRIVER, initialised. It stays loaded.
Result<DriverCalls> load_driver();

}  // namespace tnr::server
