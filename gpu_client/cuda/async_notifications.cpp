// Notifications of the device: cuda.h knows one, that the process uses more memory than its budget. No budgets are set
// here (nor by Linux), so a program that registers for it never hears of any.
#include <set>

#include "api_client/base/mutex.hpp"
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"

using namespace tnr;
using namespace tnr::cuda;

namespace {
constexpr size_t registrations_max = 1024;  // per process

struct Registered {
    Mutex mutex;
    std::set<std::pair<uint64_t, int>> all TNR_GUARDED_BY(mutex);  // number, device
    uint64_t next TNR_GUARDED_BY(mutex) = 1;
};
Registered& registered() {
    static auto* one = new Registered;
    return *one;
}
}  // namespace

extern "C" {

CUresult CUDAAPI cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback function, void*,
                                                   CUasyncCallbackHandle* out) {
    return guarded("cuDeviceRegisterAsyncNotification", [&]() -> CUresult {
        if (!function || !out) return CUDA_ERROR_INVALID_VALUE;
        if (!find_device(device)) return CUDA_ERROR_INVALID_DEVICE;
        LockGuard lock(registered().mutex);
        if (registered().all.size() >= registrations_max) return CUDA_ERROR_OUT_OF_MEMORY;
        const uint64_t number = registered().next++;
        registered().all.emplace(number, device);
        *out = reinterpret_cast<CUasyncCallbackHandle>(number);
        return CUDA_SUCCESS;
    });
}

CUresult CUDAAPI cuDeviceUnregisterAsyncNotification(CUdevice device, CUasyncCallbackHandle handle) {
    return guarded("cuDeviceUnregisterAsyncNotification", [&]() -> CUresult {
        if (!find_device(device)) return CUDA_ERROR_INVALID_DEVICE;
        LockGuard lock(registered().mutex);
        return registered().all.erase({reinterpret_cast<uint64_t>(handle), device}) != 0 ? CUDA_SUCCESS
                                                                                         : CUDA_ERROR_INVALID_VALUE;
    });
}

}  // extern "C"
