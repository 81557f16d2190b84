// Launches of the kind before CUDA 4: each call says one thing about the next launch.
#include "gpu_client/protocol/kept_launch.hpp"
#include "gpu_server/emulated_gpu/driver/module.hpp"

using namespace tnr;
using namespace tnr::emulated;

namespace {

KeptLaunches& kept_launches() {
    static auto& all = *new KeptLaunches;
    return all;
}

uint64_t number_of(CUfunction function) {
    return reinterpret_cast<uint64_t>(function);
}

template <class Change>
CUresult change(CUfunction handle, Change&& how) {
    return in_context([&](Context& context) -> CUresult {
        std::shared_ptr<Function> function;
        if (CUresult error = function_of(context, handle, function)) return error;
        auto lives = [](uint64_t kernel) { return find<Function>(kernel) || find<Kernel>(kernel); };
        return kept_launches().change(number_of(handle), lives, how) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult launch_kept(CUfunction handle, int width, int height, CUstream stream) {
    return in_context([&](Context& context) -> CUresult {
        std::shared_ptr<Function> function;
        if (CUresult error = function_of(context, handle, function)) return error;
        if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
        KeptLaunch kept = kept_launches().of(number_of(handle));
        void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, kept.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                         &kept.parameter_bytes, CU_LAUNCH_PARAM_END};
        return cuLaunchKernel(handle, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, kept.block[0],
                              kept.block[1], kept.block[2], kept.shared_bytes, stream, nullptr, extra);
    });
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    return change(function, [&](KeptLaunch& kept) { return kept.set_block(x, y, z); });
}

CUresult cuFuncSetSharedSize(CUfunction function, unsigned bytes) {
    return change(function, [&](KeptLaunch& kept) {
        const bool fits = bytes <= shared_bytes_optin;
        if (fits) kept.shared_bytes = bytes;
        return fits;
    });
}

CUresult cuParamSetSize(CUfunction function, unsigned bytes) {
    return change(function, [&](KeptLaunch& kept) { return kept.set_size(bytes); });
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned value) {
    return change(function, [&](KeptLaunch& kept) { return kept.put(offset, &value, sizeof value); });
}

CUresult cuParamSetf(CUfunction function, int offset, float value) {
    return change(function, [&](KeptLaunch& kept) { return kept.put(offset, &value, sizeof value); });
}

CUresult cuParamSetv(CUfunction function, int offset, void* data, unsigned bytes) {
    return change(function, [&](KeptLaunch& kept) { return kept.put(offset, data, bytes); });
}

CUresult cuLaunch(CUfunction function) {
    return launch_kept(function, 1, 1, nullptr);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
    return launch_kept(function, width, height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    return launch_kept(function, width, height, stream);
}
