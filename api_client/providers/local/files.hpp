// The few things done to files here: locked, linked. Writing is base/files.hpp's.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::local {

// An exclusive lock that ends with the descriptor or the process. Makes the file; waits for the lock, after having
// called `on_wait` once when somebody else has it; Ctrl-C ends the waiting. The file may be unlinked by whoever holds the lock.
Result<UniqueFd> lock_file(const std::filesystem::path& path, const std::function<void()>& on_wait = {});

// The same content at another place: a second link where both are on one file system, which costs nothing and
// survives the removal of the first, else a copy.
Result<> link_or_copy(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace tnr::local
