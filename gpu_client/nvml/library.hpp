// The state behind libnvidia-ml.so.1: what the pool last told about this machine's GPUs.
//
// NVML's users ask for dozens of values per screen; each screen costs one request, because an answer stays good for a
// second. Any thread; a child after fork() starts afresh with a connection of its own.
#pragma once

#include "gpu_client/nvml/export.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

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

// A value that this GPU has, or nothing.
std::optional<int64_t> value_of(const GpuFacts& gpu, const char* key);
// An emulated GPU has no sensors, links or boards: what is true of it without asking anybody, the library says.
bool is_emulated(const GpuFacts& gpu);

// What most questions are: a value of the snapshot, `otherwise` where the pool does not know it (null: not supported).
template <class Number>
nvmlReturn_t give(nvmlDevice_t device, const char* key, Number* where,
                  std::optional<int64_t> (*otherwise)(const GpuFacts&) = nullptr) {
    if (!where) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts& gpu, unsigned) {
        if (value_of(gpu, gpu_value::lost)) return NVML_ERROR_GPU_IS_LOST;
        auto value = value_of(gpu, key);
        if (!value && otherwise) value = otherwise(gpu);
        if (!value) return NVML_ERROR_NOT_SUPPORTED;
        *where = static_cast<Number>(*value);
        return NVML_SUCCESS;
    });
}
// Zero of an emulated GPU; of a real one only its own NVML can tell.
inline std::optional<int64_t> zero_if_emulated(const GpuFacts& gpu) {
    return is_emulated(gpu) ? std::optional<int64_t>(0) : std::nullopt;
}

// What is the same for every GPU behind a network.
template <class Value>
nvmlReturn_t constant(nvmlDevice_t device, Value* where, Value value) {
    if (!where) return NVML_ERROR_INVALID_ARGUMENT;
    return with_device(device, [&](const GpuFacts&, unsigned) {
        *where = value;
        return NVML_SUCCESS;
    });
}

// Lists the NVML way: the caller says how many fit; too few, and it learns how many there are.
template <class Item>
nvmlReturn_t give_list(const std::vector<Item>& items, unsigned* count, Item* out) {
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = out ? *count : 0;
    *count = static_cast<unsigned>(items.size());
    for (unsigned i = 0; i < room && i < items.size(); ++i) out[i] = items[i];
    return items.size() > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

// Copies text the NVML way: NUL included, or NVML_ERROR_INSUFFICIENT_SIZE.
nvmlReturn_t give_text(const std::string& text, char* buffer, unsigned length);
std::string bus_id_text(const GpuFacts& gpu, const char* format);

}  // namespace tnr::nvml
