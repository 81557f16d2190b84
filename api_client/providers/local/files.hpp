// Files that are shared where that costs nothing. Writing and locking are base/files.hpp's.
#pragma once

#include <filesystem>

#include "api_client/base/result.hpp"

namespace tnr::local {

// The same content at another place: a second link where both are on one file system, which costs nothing and
// survives the removal of the first, else a copy.
Result<> link_or_copy(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace tnr::local
