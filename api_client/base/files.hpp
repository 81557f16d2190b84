// Files that must never be seen half written: keys, records, settings.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr {

// A record or key is a few kB; something far larger is not ours, and must not fill our memory.
inline constexpr size_t small_file_bytes_max = size_t{4} << 20;

bool file_exists(const std::string& path);
// open(2) of a file or of a link to one. A missing file is an Error of kind not_found. A pipe, a socket, a device and a folder
// are refused by name: opening a pipe would wait for somebody at its other end.
Result<UniqueFd> open_file(const std::string& path, int flags);
// As open_file(); a file of more than `bytes_max` is an Error, too.
Result<std::string> read_file(const std::string& path, size_t bytes_max = small_file_bytes_max);
// A file that the user names, which may be a pipe (`<(command)`) that is written into for as long as it takes. `on_wait` is
// called once when nothing has come for a second, as where nobody writes into the pipe at all. Ctrl-C ends the waiting.
Result<std::string> read_users_file(const std::string& path, const std::function<void()>& on_wait);
// Its first line, or all of it where there is none; what follows is not waited for.
Result<std::string> read_users_line(const std::string& path, const std::function<void()>& on_wait);
// Written under another name, flushed to the disk, then renamed: a reader, a crash or a full disk sees the old
// file or the new one. Folders on the way are made, 0700. Sparse where `text` has whole pages of zeros.
// What a process that was killed meanwhile has left in that folder, perhaps with a key in it, goes with the next write or
// removal there; what another one is writing stays.
Result<> write_file(const std::string& path, const std::string& text, mode_t mode = 0600);
// Runs `change`, which reads the file and writes it anew, while nobody else is in here for a file of the same folder: of two
// tnr that run at once, neither loses what the other wrote. Ctrl-C ends the waiting (file_lock.hpp).
Result<> change_file(const std::string& path, const std::function<Result<>()>& change);
// A file that is there for its lock alone is made, and locked as wait_for_lock() does. Whoever holds the lock may unlink it.
Result<UniqueFd> lock_file(const std::string& path, const std::function<void()>& on_wait = {});
// Nothing when somebody else has it.
Result<std::optional<UniqueFd>> try_lock_file(const std::string& path);
Result<> make_folders(const std::string& path);
// Succeeds when the file is not there. Sweeps its folder as write_file() does.
Result<> remove_file(const std::string& path);

// "disk full", "permission denied", …: errno in the user's words, after what we were doing.
Error file_error(const std::string& doing, const std::string& path, int error_number);

}  // namespace tnr
