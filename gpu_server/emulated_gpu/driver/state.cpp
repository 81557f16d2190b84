#include "gpu_server/emulated_gpu/driver/state.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <set>

#include "api_client/base/mutex.hpp"
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
        if (!device->arena.reserve(device->memory_total * arena_factor, device->file.get()))
            return CUDA_ERROR_OUT_OF_MEMORY;
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

static bool log_level_is(std::initializer_list<const char*> names) {
    const char* level = getenv("TNR_LOG");
    return level && std::any_of(names.begin(), names.end(), [&](auto* name) { return strcmp(level, name) == 0; });
}

static bool logs_debug() {
    static const bool enabled = log_level_is({"debug", "trace"});
    return enabled;
}

// One line, whatever the text quotes of the program's code.
static void write_line(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
    fprintf(stderr, "emulated GPU: %s\n", text.c_str());
}

void log_debug(const std::string& text) {
    if (logs_debug()) write_line(text);
}

void say_once(const std::string& text) {
    constexpr size_t texts_max = 8;  // a program with more than that to mend has read enough
    static const bool enabled = !logs_debug() && !log_level_is({"off", "none"});
    struct Said {
        Mutex mutex;
        std::set<std::string> texts TNR_GUARDED_BY(mutex);
    };
    static Said& said = *new Said;
    if (!enabled) return;
    LockGuard lock(said.mutex);
    if (said.texts.size() < texts_max && said.texts.insert(text).second) write_line(text);
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
        static tnr::Mutex& starting = *new tnr::Mutex;  // one thread starts, the others find it done
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (phase == Phase::forked) return CUDA_ERROR_NOT_INITIALIZED;
        tnr::LockGuard lock(starting);
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
