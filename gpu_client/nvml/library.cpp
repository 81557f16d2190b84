// See library.hpp.
#include "gpu_client/nvml/library.hpp"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "api_client/base/turn.hpp"
#include "gpu_client/nvml/last_error.hpp"
#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/gpu_config.hpp"

namespace tnr::nvml {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

namespace {

struct State {
    Turn turn;
    int users TNR_GUARDED_BY(turn) = 0;
    pid_t owner TNR_GUARDED_BY(turn) = 0;
    GpuConfig config TNR_GUARDED_BY(turn);
    std::unique_ptr<control::Client> client TNR_GUARDED_BY(turn);
    std::shared_ptr<const GpuSnapshot> last TNR_GUARDED_BY(turn);
    Clock::time_point asked_at TNR_GUARDED_BY(turn);
};

// Never destroyed: other libraries' exit handlers may still call us.
State& state() {
    static State& state = *new State;
    return state;
}

Result<GpuSnapshot> ask(State& state) TNR_REQUIRES(state.turn) {
    json request{{"op", "nvml"}, {"gpu", state.config.gpu}, {"count", state.config.count}};
    if (!state.config.machine_name.empty()) request["machine"] = state.config.machine_name;
    auto answer = state.client->request(std::move(request), control::gpu_timeout);
    if (!answer) return answer.error();
    return snapshot_from_json(*answer);
}

Result<> connect(State& state) TNR_REQUIRES(state.turn) {
    auto config = load_gpu_config();
    if (!config) return config.error();
    state.config = *config;
    auto client = control::Client::open(config->pool, config->keys);
    if (!client) return client.error();
    state.client = std::move(*client);
    auto first = ask(state);
    if (!first) return first.error();
    state.last = std::make_shared<GpuSnapshot>(std::move(*first));
    state.asked_at = Clock::now();
    state.owner = getpid();
    return Ok{};
}

nvmlReturn_t code_of(const Error& error) {
    switch (error.kind) {
        case Error::Kind::auth:
            return NVML_ERROR_NO_PERMISSION;
        case Error::Kind::usage:
        case Error::Kind::network:
            return NVML_ERROR_DRIVER_NOT_LOADED;
        default:
            return NVML_ERROR_UNKNOWN;
    }
}

void leave_parents_connection(State& state) TNR_REQUIRES(state.turn) {
    if (state.owner == getpid() || !state.client) return;
    state.client->abandon();
    state.client = nullptr;
    (void)connect(state);
}

}  // namespace

nvmlReturn_t init() {
    auto& now = state();
    TakenTurn turn(now.turn);
    if (now.users == 0) {
        auto connected = connect(now);
        if (!connected) {
            remember_error(connected.error());
            return code_of(connected.error());
        }
    }
    ++now.users;
    return NVML_SUCCESS;
}

nvmlReturn_t shutdown() {
    auto& now = state();
    TakenTurn turn(now.turn);
    if (now.users == 0) return NVML_ERROR_UNINITIALIZED;
    if (--now.users == 0) {
        if (now.owner != getpid() && now.client) now.client->abandon();
        now.client = nullptr;
        now.last = nullptr;
    }
    return NVML_SUCCESS;
}

std::shared_ptr<const GpuSnapshot> snapshot() {
    auto& now = state();
    TakenTurn turn(now.turn);
    if (now.users == 0) return nullptr;
    leave_parents_connection(now);
    bool old = Clock::now() - now.asked_at > std::chrono::milliseconds(answer_good_for_ms);
    if (old && now.client) {
        auto fresh = ask(now);
        now.asked_at = Clock::now();
        if (fresh)
            now.last = std::make_shared<GpuSnapshot>(std::move(*fresh));
        else
            remember_error(fresh.error());
    }
    return now.last;
}

nvmlDevice_t handle_of(unsigned index) {
    return reinterpret_cast<nvmlDevice_t>(uintptr_t{index} + 1);
}

std::optional<int64_t> value_of(const GpuFacts& gpu, const char* key) {
    auto found = gpu.values.find(key);
    return found == gpu.values.end() ? std::nullopt : std::optional(found->second);
}

bool is_emulated(const GpuFacts& gpu) {
    return gpu.name.ends_with("(emulated)");
}

nvmlReturn_t give_text(const std::string& text, char* buffer, unsigned length) {
    if (!buffer) return NVML_ERROR_INVALID_ARGUMENT;
    if (length < text.size() + 1) return NVML_ERROR_INSUFFICIENT_SIZE;
    std::memcpy(buffer, text.c_str(), text.size() + 1);
    return NVML_SUCCESS;
}

std::string bus_id_text(const GpuFacts& gpu, const char* format) {
    char text[32];
    std::snprintf(text, sizeof text, format, gpu.pci_domain, gpu.pci_bus, gpu.pci_device);
    return text;
}

}  // namespace tnr::nvml
