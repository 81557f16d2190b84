// See driver_calls.hpp.
#include "gpu_server/supervisor/driver_calls.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace tnr::server {

std::string DriverCalls::name_of(CUresult result) const {
    const char* name = nullptr;
    return error_name(result, &name) == CUDA_SUCCESS && name ? name : "error " + std::to_string(result);
}

Result<DriverCalls> load_driver() {
    const char* path = getenv("TNR_DRIVER");
    void* library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return Error{Error::Kind::internal, std::string("cannot load the driver: ") + dlerror()};

    DriverCalls calls{};
    std::string missing;
    auto find = [&](auto& call, const char* name) {
        call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
        if (!call) missing = name;
    };
    find(calls.init, "cuInit");
    find(calls.error_name, "cuGetErrorName");
    find(calls.device_count, "cuDeviceGetCount");
    find(calls.device, "cuDeviceGet");
    find(calls.device_name, "cuDeviceGetName");
    find(calls.device_uuid, "cuDeviceGetUuid_v2");
    find(calls.total_memory, "cuDeviceTotalMem_v2");
    find(calls.attribute, "cuDeviceGetAttribute");
    find(calls.retain_context, "cuDevicePrimaryCtxRetain");
    find(calls.set_context, "cuCtxSetCurrent");
    find(calls.memory_info, "cuMemGetInfo_v2");
    find(calls.allocate, "cuMemAlloc_v2");
    find(calls.free, "cuMemFree_v2");
    find(calls.fill, "cuMemsetD32_v2");
    find(calls.copy_down, "cuMemcpyDtoH_v2");
    find(calls.synchronize, "cuCtxSynchronize");
    if (!missing.empty()) return Error{Error::Kind::internal, "the driver lacks " + missing};
    if (auto code = calls.init(0); code != CUDA_SUCCESS)
        return Error{Error::Kind::internal, "cuInit: " + calls.name_of(code)};
    return calls;
}

}  // namespace tnr::server
