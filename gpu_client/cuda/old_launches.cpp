// Launches of the kind before CUDA 4: each call says one thing about the next launch. Nothing of it travels but the
// launch itself, which is one like any other.
#include "gpu_client/cuda/devices.hpp"
#include "gpu_client/cuda/guarded.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/cuda/thread_state.hpp"
#include "gpu_client/protocol/kept_launch.hpp"

namespace tnr::cuda {

static KeptLaunches& kept_launches() {
    static auto* all = new KeptLaunches;
    return *all;
}

static CUresult check(CUfunction function) {
    Context* context = nullptr;
    if (auto result = current_context(context); result != CUDA_SUCCESS) return result;
    return find_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

template <class Change>
static CUresult change(CUfunction function, Change&& how) {
    if (auto result = check(function); result != CUDA_SUCCESS) return result;
    auto lives = [](uint64_t handle) { return functions().find(handle) != nullptr; };
    return kept_launches().change(value_of(function), lives, how) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// What some kernel of the current device's may have.
static unsigned shared_bytes_max() {
    Context* context = nullptr;
    if (current_context(context) != CUDA_SUCCESS) return 0;
    return static_cast<unsigned>(
        find_device(context->device)->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
}

static CUresult launch_kept(CUfunction function, int width, int height, CUstream stream) {
    if (auto result = check(function); result != CUDA_SUCCESS) return result;
    if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
    auto kept = kept_launches().of(value_of(function));
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, kept.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &kept.parameter_bytes, CU_LAUNCH_PARAM_END};
    return cuLaunchKernel(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, kept.block[0],
                          kept.block[1], kept.block[2], kept.shared_bytes, stream, nullptr, extra);
}

}  // namespace tnr::cuda

using namespace tnr;
using namespace tnr::cuda;

extern "C" {

CUresult CUDAAPI cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    return guarded("cuFuncSetBlockShape",
                   [&] { return change(function, [&](KeptLaunch& kept) { return kept.set_block(x, y, z); }); });
}

CUresult CUDAAPI cuFuncSetSharedSize(CUfunction function, unsigned int bytes) {
    return guarded("cuFuncSetSharedSize", [&] {
        return change(function, [&](KeptLaunch& kept) {
            const bool fits = bytes <= shared_bytes_max();
            if (fits) kept.shared_bytes = bytes;
            return fits;
        });
    });
}

CUresult CUDAAPI cuParamSetSize(CUfunction function, unsigned int bytes) {
    return guarded("cuParamSetSize",
                   [&] { return change(function, [&](KeptLaunch& kept) { return kept.set_size(bytes); }); });
}

CUresult CUDAAPI cuParamSeti(CUfunction function, int offset, unsigned int value) {
    return guarded("cuParamSeti", [&] {
        return change(function, [&](KeptLaunch& kept) { return kept.put(offset, &value, sizeof value); });
    });
}

CUresult CUDAAPI cuParamSetf(CUfunction function, int offset, float value) {
    return guarded("cuParamSetf", [&] {
        return change(function, [&](KeptLaunch& kept) { return kept.put(offset, &value, sizeof value); });
    });
}

CUresult CUDAAPI cuParamSetv(CUfunction function, int offset, void* data, unsigned int bytes) {
    return guarded("cuParamSetv",
                   [&] { return change(function, [&](KeptLaunch& kept) { return kept.put(offset, data, bytes); }); });
}

CUresult CUDAAPI cuLaunch(CUfunction function) {
    return guarded("cuLaunch", [&] { return launch_kept(function, 1, 1, nullptr); });
}

CUresult CUDAAPI cuLaunchGrid(CUfunction function, int width, int height) {
    return guarded("cuLaunchGrid", [&] { return launch_kept(function, width, height, nullptr); });
}

CUresult CUDAAPI cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    return guarded("cuLaunchGridAsync", [&] { return launch_kept(function, width, height, stream); });
}

}  // extern "C"
