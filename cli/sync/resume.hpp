// Going on with a large file whose copying was cut off.
//
// A large file's temporary name tells of which source, size and time it is a part, so that a later run finds it where it
// lists the folder anyway. What is there is taken only when both sides have the same SHA-256 of it, and by renaming it to
// a name of this run: two runs cannot both have it, and none ever shortens what another one writes.
#pragma once

#include <optional>
#include <string>

#include "cli/sync/tree.hpp"

namespace tnr::sync {

// Smaller files are sent again sooner than both sides have looked at what there is of them.
inline constexpr uint64_t resume_bytes_min = uint64_t{8} << 20;

// The eight letters for a file that shall be called `place`; in its temporary names.
std::string identity(const std::string& place, const Item& item);
// The letters in a temporary name (without its folder); empty when it is none.
std::string letters_of(const std::string& temporary);

// How many bytes of a part of that size are worth a look: the last ones may have arrived out of order.
uint64_t bytes_to_keep(uint64_t part_bytes);

// SHA-256 of the first bytes, in hex; empty when it could not be made.
std::string hash_here(const std::string& path, uint64_t bytes);
std::string hash_there(ssh::Sftp& sftp, const std::string& path, uint64_t bytes);

}  // namespace tnr::sync
