// See gpu_config.hpp.
#include "gpu_client/protocol/gpu_config.hpp"

#include <sys/stat.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "api_client/base/files.hpp"
#include "api_client/base/paths.hpp"
#include "gpu_client/protocol/control.hpp"

namespace tnr {

using nlohmann::json;

Result<GpuConfig> parse_gpu_config(const std::string& text) try {
    auto file = json::parse(text);
    GpuConfig config;
    config.pool = file.at("pool").get<std::string>();
    config.gpu = file.at("gpu").get<std::string>();
    config.count = file.value("count", 1);
    if (config.count < 1 || config.count > control::gpus_per_claim_max)
        return Error{Error::Kind::usage, "count is out of range"};
    config.wait_s = file.value("wait_s", int64_t{0});
    if (config.wait_s < 0 || config.wait_s > control::wait_s_max)
        return Error{Error::Kind::usage, "wait_s is out of range"};
    config.keys.server_public = file.value("server_key", "");
    if (auto machine = file.find("machine"); machine != file.end()) {
        config.machine_name = machine->value("name", "");
        config.keys.own = {machine->value("public_key", ""), machine->value("secret_key", "")};
    }
    return config;
} catch (const json::exception& error) {
    return Error{Error::Kind::usage, std::string("not a GPU configuration: ") + error.what()};
}

// {"OLD": "NEW", …}, public keys of pools.
static std::string learned_keys_path() {
    return state_dir() / "pool_keys.json";
}

static json learned_keys() {
    auto text = read_file(learned_keys_path());
    auto keys = text ? json::parse(*text, nullptr, false) : json();
    return keys.is_object() ? keys : json::object();
}

// Rotations that nobody on this machine has noted in the file itself.
static constexpr int rotations_max = 16;

static void apply_learned_keys(GpuConfig& config) {
    if (config.keys.plain()) return;
    auto keys = learned_keys();
    for (int i = 0; i < rotations_max; ++i) {
        auto newer = keys.find(config.keys.server_public);
        if (newer == keys.end() || !newer->is_string() || !wire::looks_like_key(*newer)) return;
        config.keys.server_public = *newer;
    }
}

static std::string config_path() {
    const char* named = std::getenv("TNR_CONFIG");
    return named && *named ? named : gpu_config_path;
}

void remember_pool_key(const std::string& known, const std::string& newer) try {
    auto text = read_file(config_path());
    auto file = text ? json::parse(*text, nullptr, false) : json();
    struct stat status {};
    if (file.is_object() && file.value("server_key", "") == known && stat(config_path().c_str(), &status) == 0) {
        file["server_key"] = newer;
        if (write_file(config_path(), file.dump(2) + "\n", status.st_mode & 0777)) return;
    }
    auto keys = learned_keys();
    keys[known] = newer;
    (void)bool(write_file(learned_keys_path(), keys.dump(2) + "\n", 0600));
} catch (const std::exception&) {
}

std::string to_json_text(const GpuConfig& config) {
    json file{{"pool", config.pool}, {"gpu", config.gpu}, {"count", config.count}};
    if (config.wait_s > 0) file["wait_s"] = config.wait_s;
    if (!config.machine_name.empty()) file["machine"]["name"] = config.machine_name;
    if (!config.keys.plain()) {
        file["server_key"] = config.keys.server_public;
        file["machine"]["public_key"] = config.keys.own.public_key;
        file["machine"]["secret_key"] = config.keys.own.secret_key;
    }
    return file.dump(2) + "\n";
}

static std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

static Result<int64_t> parse_wait(const std::string& text) {
    if (text == "forever") return control::wait_s_max;
    int64_t seconds = -1;
    auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (failed == std::errc{} && *rest == 0 && seconds >= 0 && seconds <= control::wait_s_max) return seconds;
    return Error{Error::Kind::usage, "TNR_WAIT='" + text + "' is no time to wait", "it is seconds, or forever"};
}

static Result<> apply_environment(GpuConfig& config) {
    if (auto wait = environment("TNR_WAIT"); !wait.empty()) {
        auto seconds = parse_wait(wait);
        if (!seconds) return seconds.error();
        config.wait_s = *seconds;
    }
    if (auto pool = environment("TNR_POOL"); !pool.empty()) config.pool = pool;
    auto gpu = environment("TNR_GPU");
    if (gpu.empty()) return Ok{};
    auto colon = gpu.find(':');
    config.gpu = gpu.substr(0, colon);
    config.count = colon == std::string::npos ? 1 : std::atoi(gpu.c_str() + colon + 1);
    if (config.count < 1 || config.count > control::gpus_per_claim_max)
        return Error{Error::Kind::usage, "TNR_GPU='" + gpu + "' is no GPU type", "it looks like h100 or h100:2"};
    return Ok{};
}

Result<GpuConfig> load_gpu_config() try {
    auto named = environment("TNR_CONFIG");
    std::string path = config_path();
    GpuConfig config;
    if (std::ifstream file(path); file) {
        std::stringstream text;
        text << file.rdbuf();
        auto parsed = parse_gpu_config(text.str());
        if (!parsed) return Error{parsed.error().kind, path + ": " + parsed.error().what, parsed.error().hint};
        config = *parsed;
        apply_learned_keys(config);
    } else if (!named.empty()) {
        return Error{Error::Kind::usage, "cannot read " + path, "TNR_CONFIG names it"};
    }
    if (auto applied = apply_environment(config); !applied) return applied.error();
    if (config.pool.empty() || config.gpu.empty())
        return Error{Error::Kind::usage, "no GPU is configured on this machine",
                     "start it with `tnr start`, run the program with `tnr run`, or set TNR_POOL and TNR_GPU"};
    return config;
} catch (const std::exception& error) {
    return Error{Error::Kind::internal, error.what()};
}

}  // namespace tnr
