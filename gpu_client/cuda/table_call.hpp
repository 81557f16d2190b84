// A call whose arguments come from the program: handles and addresses are checked, and our numbers for them are sent.
// The code that callgen.py generates is built on this.
#pragma once

#include <optional>

#include "gpu_client/cuda/other_devices.hpp"
#include "gpu_client/cuda/remote_call.hpp"

namespace tnr::cuda {

class TableCall : public RemoteCall {
public:
    using RemoteCall::RemoteCall;

    void handle(CUstream stream);
    template <class Handle>
    void handle(Handle given) {
        uint64_t number = 0;
        if (auto result = number_of(given, number); result != CUDA_SUCCESS) refuse(result);
        put(number);
    }
    void ordinal(CUdevice device);  // the session counts devices before CUDA_VISIBLE_DEVICES
    // A device address with `bytes` of memory behind it.
    void device(CUdeviceptr address, uint64_t bytes);
    // The same for work that the memory's own device does, in the order of the stream that is named next.
    void any_device(CUdeviceptr address, uint64_t bytes);
    void aligned(CUdeviceptr address, uint64_t unit) {
        if (address % unit != 0) refuse(CUDA_ERROR_INVALID_VALUE);
    }
    CUresult send();

private:
    std::optional<CUdeviceptr> anywhere_;
    Detour detour_;
};

// True for memory that the current context's device may not use but another of ours may.
bool is_elsewhere(CUdeviceptr address);

}  // namespace tnr::cuda
