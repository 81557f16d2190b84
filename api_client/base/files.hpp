// Files that must never be seen half written: keys, records, settings.
#pragma once

#include <sys/types.h>

#include <string>

#include "api_client/base/result.hpp"

namespace tnr {

bool file_exists(const std::string& path);
// A missing file is an Error of kind not_found.
Result<std::string> read_file(const std::string& path);
// Written under another name, flushed to the disk, then renamed: a reader, a crash or a full disk sees the old
// file or the new one. Folders on the way are made, 0700. Sparse where `text` has whole pages of zeros.
Result<> write_file(const std::string& path, const std::string& text, mode_t mode = 0600);
Result<> make_folders(const std::string& path);
// Succeeds when the file is not there.
Result<> remove_file(const std::string& path);

// "disk full", "permission denied", …: errno in the user's words, after what we were doing.
Error file_error(const std::string& doing, const std::string& path, int error_number);

}  // namespace tnr
