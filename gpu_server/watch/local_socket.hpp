// HTTP over a socket in a folder that nobody else may enter: who may is up to the folder's rights.
#pragma once

#include <sys/types.h>

#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::watch {

// Takes the place of what an earlier server left there.
Result<UniqueFd> listen_locally(const std::string& path, int backlog);
// GET; the body of a 200. Blocks, for some seconds at most.
Result<std::string> ask_locally(const std::string& socket, const std::string& path);
// Who listens there.
Result<pid_t> process_behind(const std::string& socket);

}  // namespace tnr::watch
