// `tnr-gpu-server status`: what the server that runs on a state folder says of itself; its owner sees all of it. Of the pool's
// other nodes it tells who has GPUs there, as the pool's store knows it.
#pragma once

#include <iosfwd>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::server {

// `format`: "table" for people, or "json".
Result<> show_status(const std::string& state, const std::string& format, bool all_limits, std::ostream& out);

}  // namespace tnr::server
