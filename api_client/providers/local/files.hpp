// The few things done to files here: written whole or not at all, locked, linked.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::local {

// Replaces the file at once, by renaming; mode 0600. Sparse where `content` has whole pages of zeros.
Result<> write_file(const std::filesystem::path& path, const std::string& content);

// An exclusive lock that ends with the descriptor or the process. Makes the file; waits for the lock, after having
// called `on_wait` once when somebody else has it. The file may be unlinked by whoever holds the lock.
Result<UniqueFd> lock_file(const std::filesystem::path& path, const std::function<void()>& on_wait = {});

// The same content at another place: a second link where both are on one file system, which costs nothing and
// survives the removal of the first, else a copy.
Result<> link_or_copy(const std::filesystem::path& from, const std::filesystem::path& to);

// "cannot write PATH: No space left on device", with what to do about it.
Error file_error(const std::string& doing, const std::filesystem::path& path, int error);

}  // namespace tnr::local
