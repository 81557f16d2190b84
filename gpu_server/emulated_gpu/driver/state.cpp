#include "gpu_server/emulated_gpu/driver/state.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "gpu_server/emulated_gpu/driver/context.hpp"

namespace tnr::emulated {
namespace {

enum class Phase { before_init, ready, forked };
std::atomic<Phase> phase{Phase::before_init};

// Addresses reserved per device, as a multiple of its memory: fragmentation must not make an allocation
// fail that the budget allows.
constexpr uint64_t arena_factor = 4;

// Plain storage, not a std::string: a thread-local with a destructor would be gone when exit handlers call.
constexpr size_t last_error_bytes = 1024;
thread_local char last_error[last_error_bytes];

CUresult start() {
    static Driver& state = driver();
    Configuration configuration = configuration_from_environment();
    if (!configuration.error.empty()) {
        fprintf(stderr, "emulated GPU: %s\n", configuration.error.c_str());
        return CUDA_ERROR_NO_DEVICE;
    }
    if (configuration.devices.empty()) return CUDA_ERROR_NO_DEVICE;
    for (auto& device : configuration.devices)
        if (!device->arena.reserve(device->memory_total * arena_factor)) return CUDA_ERROR_OUT_OF_MEMORY;
    state.devices = std::move(configuration.devices);
    for (auto& device : state.devices) device->primary = Context::create_primary(*device);
    pthread_atfork(nullptr, nullptr, [] {
        if (phase == Phase::ready) phase = Phase::forked;
    });
    phase = Phase::ready;
    return CUDA_SUCCESS;
}

}  // namespace

Driver& driver() {
    static Driver& instance = *new Driver;
    return instance;
}

CUresult ready() {
    return phase == Phase::ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

Device* device_of(CUdevice ordinal) {
    auto& devices = driver().devices;
    return ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size() ? devices[ordinal].get() : nullptr;
}

void set_last_error(std::string text) {
    size_t size = std::min(text.size(), last_error_bytes - 1);
    std::memcpy(last_error, text.data(), size);
    last_error[size] = 0;
}

void log_debug(const std::string& text) {
    static const bool enabled = [] {
        const char* level = getenv("TNR_LOG");
        return level && (strcmp(level, "debug") == 0 || strcmp(level, "trace") == 0);
    }();
    if (enabled) fprintf(stderr, "emulated GPU: %s\n", text.c_str());
}

CUresult current_exception_code() noexcept {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    } catch (...) {
        return CUDA_ERROR_UNKNOWN;
    }
}

}  // namespace tnr::emulated

using namespace tnr::emulated;

CUresult cuInit(unsigned int flags) {
    return guarded([&]() -> CUresult {
        static std::mutex& mutex = *new std::mutex;
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (phase == Phase::forked) return CUDA_ERROR_NOT_INITIALIZED;
        std::lock_guard lock(mutex);
        return phase == Phase::ready ? CUDA_SUCCESS : start();
    });
}

CUresult cuDriverGetVersion(int* version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = driver_version;
    return CUDA_SUCCESS;
}

const char* tnr_emulated_last_error() {
    return last_error;
}
