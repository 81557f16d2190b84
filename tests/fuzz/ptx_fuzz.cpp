// Any text at all: load() answers with a module or an error, and what loads may be launched without harm to
// anything but the memory it was given. Kernels get one small buffer for every parameter.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "gpu_server/emulated_gpu/ptx/ptx.hpp"

using namespace tnr::ptx;

namespace {

constexpr size_t arena_bytes = 4096;
alignas(64) unsigned char arena[arena_bytes];

class OneRange : public Memory {
public:
    Range range_of(uint64_t) const override {
        auto begin = reinterpret_cast<uint64_t>(arena);
        return {begin, begin + arena_bytes};
    }
};

void launch_all(const Module& module) {
    std::vector<uint64_t> addresses;
    for (size_t k = 0; k < module.globals().size(); ++k) {
        if (module.globals()[k].size > arena_bytes) return;
        addresses.push_back(reinterpret_cast<uint64_t>(arena));
    }
    for (size_t k = 0; k < addresses.size(); ++k)
        module.initialise(k, addresses, {reinterpret_cast<std::byte*>(arena), module.globals()[k].size});
    OneRange memory;
    for (auto& kernel : module.kernels()) {
        if (kernel.parameter_bytes > 1024) continue;
        std::vector<std::byte> parameters(kernel.parameter_bytes);
        auto address = reinterpret_cast<uint64_t>(arena);
        for (size_t at = 0; at + 8 <= parameters.size(); at += 8) std::memcpy(&parameters[at], &address, 8);
        Launch launch;
        launch.module = &module;
        launch.kernel = kernel.index;
        launch.global_addresses = addresses;
        launch.block = {40, 1, 1};
        launch.parameters = parameters;
        launch.memory = &memory;
        // Endless loops are legal programs: a watchdog ends them.
        bool cancelled = false;
        std::atomic<bool> done{false};
        std::thread watchdog([&] {
            for (int k = 0; k < 50 && !done; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            __atomic_store_n(&cancelled, true, __ATOMIC_RELAXED);
        });
        launch.cancelled = &cancelled;
        run(launch, 1);
        done = true;
        watchdog.join();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    auto module = load({reinterpret_cast<const char*>(data), size});
    if (module) launch_all(**module);
    return 0;
}
