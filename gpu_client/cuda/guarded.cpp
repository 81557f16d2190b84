// See guarded.hpp; also the calls that nothing serves yet.
#include "gpu_client/cuda/guarded.hpp"

#include <exception>
#include <mutex>
#include <new>
#include <set>

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

void trace_call(const char* name, CUresult result) {
    log(LogLevel::trace, "%s = %d", name, static_cast<int>(result));
}

// The exports of calls marked `unsupported`; each name is told once, since programs try in loops.
int unsupported(const char* name) {
    static auto* mutex = new std::mutex;
    static auto* told = new std::set<const char*>;
    if (refusal() == CUDA_ERROR_NOT_INITIALIZED) return CUDA_ERROR_NOT_INITIALIZED;
    std::lock_guard lock(*mutex);
    if (told->insert(name).second) log(LogLevel::info, "%s is not supported yet", name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tnr::cuda
