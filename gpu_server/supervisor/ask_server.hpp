// What the operator's commands hear from the server that runs on a folder.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "api_client/base/result.hpp"
#include "gpu_server/supervisor/state_folder.hpp"

namespace tnr::server {

struct ServerNow {
    nlohmann::json says;  // /api/now of its watch address
    pid_t process = 0;
};
// Kind usage: none runs there. One that starts, or is just being replaced, does not answer for a moment: it is asked again for so
// long.
Result<ServerNow> ask_server(const StateFolder& folder, std::chrono::milliseconds patience);

}  // namespace tnr::server
