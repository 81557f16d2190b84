// `tnr-gpu-server check`: whether all that `serve` needs with these options is there; changes nothing.
#pragma once

#include <iosfwd>
#include <string>

#include "gpu_server/supervisor/supervisor.hpp"

namespace tnr::server {

// A line each: ok, warn or fail, and how to mend it. An Error when something failed. `format`: "table" or "json".
Result<> check(const ServeOptions& options, const std::string& format, std::ostream& out);

}  // namespace tnr::server
