// See decoder.hpp.
#include "gpu_server/worker/decoder.hpp"

#include "gpu_client/protocol/custom_calls.hpp"

namespace tnr::worker {

Kernel* Handles::kernel(uint64_t function_number) {
    auto* library = libraries.find(function_number >> wire::function_index_bits);
    auto index = function_number & ((uint64_t{1} << wire::function_index_bits) - 1);
    return library && index < library->kernels.size() ? &library->kernels[index] : nullptr;
}

CUstream Decoder::stream() {
    auto number = get<uint64_t>();
    if (number == 0) return nullptr;
    if (number == 1) return CU_STREAM_LEGACY;
    auto* found = handles_.streams.find(number);
    return found ? found->handle : missing<CUstream>();
}

CUevent Decoder::event() {
    return shared_event().get();
}

SharedEvent Decoder::shared_event() {
    auto* found = handles_.events.find(get<uint64_t>());
    return found ? *found : missing<SharedEvent>();
}

CUcontext Decoder::context() {
    auto* found = handles_.contexts.find(get<uint64_t>());
    return found ? *found : missing<CUcontext>(CUDA_ERROR_INVALID_CONTEXT);
}

CUlibrary Decoder::library() {
    auto* found = handles_.libraries.find(get<uint64_t>());
    return found ? found->handle : missing<CUlibrary>();
}

CUkernel Decoder::kernel() {
    auto* found = handles_.kernel(get<uint64_t>());
    return found ? found->handle : missing<CUkernel>();
}

CUfunction Decoder::function() {
    auto* found = handles_.kernel(get<uint64_t>());
    if (!found) return missing<CUfunction>();
    auto& function = found->functions[current_];
    if (function) return function;
    auto result = driver().cuKernelGetFunction(&function, found->handle);
    return result == CUDA_SUCCESS ? function : missing<CUfunction>(result);
}

}  // namespace tnr::worker
