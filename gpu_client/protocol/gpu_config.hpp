// Which GPU a machine (or one `tnr run`) uses and how it reaches the pool: the file /etc/tnr/gpu.json.
//
// {"pool": "tcp://host:14900", "gpu": "h100", "count": 1, "server_key": z85, "machine": {"name", "public_key",
// "secret_key"}, "wait_s": 300}; without `server_key` and the machine's keys, plain text is spoken, which pools accept on loopback.
#pragma once

#include <cstdint>
#include <string>

#include "api_client/base/result.hpp"
#include "gpu_client/protocol/keys.hpp"

namespace tnr {

struct GpuConfig {
    std::string pool;
    std::string gpu;
    int count = 1;
    std::string machine_name;
    wire::ClientKeys keys;
    int64_t wait_s = 0;  // that programs wait for a GPU when all are in use; control::wait_s_max: for ever
};

inline constexpr const char* gpu_config_path = "/etc/tnr/gpu.json";

// Reads the file named by TNR_CONFIG, else gpu_config_path. TNR_POOL and TNR_GPU ("h100" or "h100:2") in the
// environment override the file and suffice without one; TNR_WAIT (seconds, or "forever") overrides wait_s. Never throws.
Result<GpuConfig> load_gpu_config();
// The pool has told that it has a newer public key than the one it is known by here: remembered where `config` was read from,
// or, where this process may not write there, in a file of this user's own that load_gpu_config() looks at as well. Never
// throws; what cannot be written is told again.
void remember_pool_key(const std::string& known, const std::string& newer);
std::string to_json_text(const GpuConfig& config);
Result<GpuConfig> parse_gpu_config(const std::string& text);

}  // namespace tnr
