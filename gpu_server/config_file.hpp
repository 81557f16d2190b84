// `serve --config FILE`: what the command line leaves open. KEY = VALUE lines in TOML, where KEY is an option without its
// dashes (packaging/dist/debian/tnr-gpu-server.conf shows all). The command line wins.
#pragma once

#include <string>

#include "api_client/base/result.hpp"

namespace CLI {
class App;
}

namespace tnr::server {

// `command` has been parsed already. Kind usage, with the line, for what is no setting of it, or no value of one.
Result<> read_config(CLI::App& command, const std::string& path);

}  // namespace tnr::server
