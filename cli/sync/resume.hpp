// Going on with a large file whose copying was cut off.
//
// Its temporary name (engine/temporary.hpp) makes a later run find it where it lists the folder anyway. What is there is taken only when both sides have the same SHA-256 of it, and by renaming it to
// a name of this run: two runs cannot both have it, and none ever shortens what another one writes.
#pragma once

#include <string>

#include "api_client/base/handles.hpp"
#include "cli/ssh/sftp.hpp"

namespace tnr::sync {

// How many bytes of a part of that size are worth a look: the last ones may have arrived out of order.
uint64_t bytes_to_keep(uint64_t part_bytes);

// SHA-256 of the first bytes, in hex; empty when it could not be made.
std::string hash_here(const UniqueFd& file, uint64_t bytes);
std::string hash_there(ssh::Sftp& sftp, const std::string& path, uint64_t bytes);

}  // namespace tnr::sync
