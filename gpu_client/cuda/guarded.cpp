// See guarded.hpp; also the calls that nothing serves yet.
#include "gpu_client/cuda/guarded.hpp"

#include <exception>
#include <new>
#include <string>

namespace tnr::cuda {

CUresult report_exception(const char* name) noexcept try { throw; } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
} catch (const std::exception& error) {
    log(LogLevel::error, "%s failed in the client library: %s", name, error.what());
    return CUDA_ERROR_UNKNOWN;
} catch (...) {
    log(LogLevel::error, "%s failed in the client library", name);
    return CUDA_ERROR_UNKNOWN;
}

// The exports of calls marked `unsupported`; each name is told once, since programs try in loops.
int unsupported(const char* name) {
    if (refusal() == CUDA_ERROR_NOT_INITIALIZED) return CUDA_ERROR_NOT_INITIALIZED;
    log_once(LogLevel::warning, std::string(name) + " is not supported yet; `tnr support` lists what is");
    return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tnr::cuda
