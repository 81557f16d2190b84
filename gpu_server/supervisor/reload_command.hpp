// `tnr-gpu-server reload`: has the server that runs on a state folder replaced by the binary that is installed now, while programs
// go on (replacing.hpp), and waits until that is so.
#pragma once

#include <iosfwd>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::server {

// Kind usage: none runs there, or one of before there was this.
Result<> reload(const std::string& state, std::ostream& out);

}  // namespace tnr::server
