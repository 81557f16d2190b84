// The state behind libnvidia-ml.so.1: what the pool last told about this machine's GPUs.
//
// NVML's users ask for dozens of values per screen; each screen costs one request, because an answer stays good for a
// second. Any thread; a child after fork() starts afresh with a connection of its own.
#pragma once

#include "gpu_client/nvml/export.hpp"

#include <memory>
#include <string>

#include "gpu_client/protocol/gpu_facts.hpp"

namespace tnr::nvml {

// How old an answer may be. nvidia-smi and friends redraw once a second at the most.
inline constexpr int answer_good_for_ms = 1000;

// Counts like NVML: as many shutdowns as inits. Connects with the first.
nvmlReturn_t init();
nvmlReturn_t shutdown();

// The newest snapshot; null when the library is not initialised. A pool that does not answer any more leaves the last
// one.
std::shared_ptr<const GpuSnapshot> snapshot();

// Handles are ordinals in disguise (they survive a new snapshot): 1 … n.
nvmlDevice_t handle_of(unsigned index);
// Runs `use(gpu, index)` on the handle's GPU, or says what is wrong with it. Exceptions do not leave.
template <class Use>
nvmlReturn_t with_device(nvmlDevice_t device, Use&& use) noexcept try {
    auto now = snapshot();
    if (!now) return NVML_ERROR_UNINITIALIZED;
    auto ordinal = reinterpret_cast<uintptr_t>(device);
    if (ordinal == 0 || ordinal > now->devices.size()) return NVML_ERROR_INVALID_ARGUMENT;
    return use(now->devices[ordinal - 1], static_cast<unsigned>(ordinal - 1));
} catch (...) {
    return NVML_ERROR_UNKNOWN;
}

// Copies text the NVML way: NUL included, or NVML_ERROR_INSUFFICIENT_SIZE.
nvmlReturn_t give_text(const std::string& text, char* buffer, unsigned length);
std::string bus_id_text(const GpuFacts& gpu, const char* format);

}  // namespace tnr::nvml
