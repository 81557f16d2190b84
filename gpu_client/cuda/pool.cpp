// See pool.hpp.
#include "gpu_client/cuda/pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "api_client/base/turn.hpp"
#include "gpu_client/cuda/log.hpp"
#include "gpu_client/cuda/stats.hpp"
#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/gpu_config.hpp"
#include "gpu_client/protocol/keys.hpp"
#include "gpu_client/protocol/lanes.hpp"

namespace tnr::cuda {

using nlohmann::json;

namespace {
struct Pool {
    Turn turn;
    GpuConfig config TNR_GUARDED_BY(turn);
    std::unique_ptr<control::Client> client TNR_GUARDED_BY(turn);
};
Pool& pool() {
    static auto* one = new Pool;
    return *one;
}

}  // namespace

static Result<> open_client() TNR_REQUIRES(pool().turn) {
    if (pool().client) return Ok{};
    auto config = load_gpu_config();
    if (!config) return config.error();
    pool().config = *config;
    auto client = control::Client::open(config->pool, config->keys);
    if (!client) return client.error();
    pool().client = std::move(*client);
    return Ok{};
}

static Result<json> ask(json request) {
    TakenTurn turn(pool().turn);
    if (auto open = open_client(); !open) return open.error();
    request["gpu"] = pool().config.gpu;
    request["count"] = pool().config.count;
    if (!pool().config.machine_name.empty()) request["machine"] = pool().config.machine_name;
    stats().control_waited.fetch_add(1, Stats::relaxed);
    auto answer = pool().client->request(std::move(request), control::gpu_timeout);
    auto& known = pool().config.keys.server_public;
    if (auto newer = pool().client->newer_pool_key(); newer && *newer != known)
        remember_pool_key(std::exchange(known, *newer), *newer);
    return answer;
}

static std::string answered_by() {
    TakenTurn turn(pool().turn);
    return pool().client->address();
}

// Only that the configuration is read.
static Result<> know_pool() {
    TakenTurn turn(pool().turn);
    return open_client();
}

static GpuConfig pool_config() {
    TakenTurn turn(pool().turn);
    return pool().config;
}

static Result<std::vector<DeviceDescription>> devices_of(const json& answer) {
    std::vector<DeviceDescription> devices;
    auto list = answer.find("devices");
    if (list == answer.end() || !list->is_array()) return Error{Error::Kind::remote, "the pool named no devices"};
    for (auto& entry : *list) {
        auto device = device_from_json(entry);
        if (!device) return device.error();
        devices.push_back(std::move(*device));
    }
    return devices;
}

Result<std::vector<DeviceDescription>> ask_for_devices() {
    auto answer = ask({{"op", "describe"}});
    if (!answer) return answer.error();
    return devices_of(*answer);
}

static std::string process_name() {
    std::ifstream file("/proc/self/comm");
    std::string name;
    std::getline(file, name);
    for (char& c : name)
        if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';  // JSON wants UTF-8
    return name;
}

// TNR_LANES: for tests, benchmarks and machines that have something better to do with their cores.
static size_t wanted_lanes() {
    const char* wanted = std::getenv("TNR_LANES");
    return wanted ? std::min<size_t>(std::strtoul(wanted, nullptr, 10), wire::lanes_max)
                  : wire::lanes_for_cores(std::thread::hardware_concurrency());
}

// Tells the user what a program waits for that otherwise would seem to hang.
static void tell_place(const json& queued, int64_t& told) {
    auto place = queued.at("place").get<int64_t>(), of = queued.at("of").get<int64_t>();
    if (std::exchange(told, place) == place) return;
    auto above = queued.value("above", int64_t{0});
    auto why = above > 0 ? " (" + std::to_string(above) + " with a higher priority)" : std::string();
    log(LogLevel::warning,
        "all %s of the pool are in use: this program waits, and is number %lld of %lld in the queue%s",
        pool_config().gpu.c_str(), static_cast<long long>(place), static_cast<long long>(of), why.c_str());
}

// Until there is a GPU, as far as the user is willing to wait: the pool keeps our place while we ask again and again.
static Result<json> ask_in_queue(json request) {
    using Clock = std::chrono::steady_clock;
    const auto begun = Clock::now();
    for (int64_t place = 0;;) {
        if (auto open = know_pool(); !open) return open.error();
        const int64_t wait_s = pool_config().wait_s;
        const auto passed = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begun).count();
        if (wait_s == control::wait_s_max)
            request["wait_s"] = wait_s;
        else if (wait_s > 0)
            request["wait_s"] = std::max<int64_t>(wait_s - passed, 1);
        request["place"] = place;
        auto answer = ask(request);
        if (!answer || !answer->contains("queued")) return answer;
        tell_place(answer->at("queued"), place);
    }
}

// By the nonce the pool recognises a request that has to be repeated.
Result<SessionOffer> ask_for_session() try {
    auto answer = ask_in_queue({{"op", "session"},
                                {"pid", ::getpid()},
                                {"process", process_name()},
                                {"nonce", wire::random_id()},
                                {"doors", true}});
    if (!answer) return answer.error();
    auto devices = devices_of(*answer);
    if (!devices) return devices.error();
    const auto config = pool_config();
    SessionOffer offer;
    offer.devices = std::move(*devices);
    if (auto door = answer->value("door", uint64_t{0}); door != 0)  // the worker has no port of its own (greeting.hpp)
        offer.endpoint = answered_by() + "#" + std::to_string(door);
    else
        offer.endpoint = control::worker_endpoint(answer->at("endpoint").get<std::string>(), answered_by());
    offer.session = answer->at("session").get<std::string>();
    offer.keys.own = config.keys.own;
    if (auto key = answer->value("server_key", json()); key.is_string())
        offer.keys.server_public = key.get<std::string>();
    // Without encryption there is nothing that more threads would do faster. Older servers offer no lanes.
    if (!offer.keys.plain()) offer.lanes = std::min(answer->value("lanes", size_t{0}), wanted_lanes());
    offer.asks_port = answer->value("asks_port", false);
    return offer;
} catch (const json::exception& error) {
    return Error{Error::Kind::remote, std::string("the pool offered a session badly: ") + error.what()};
}

}  // namespace tnr::cuda
