// The NoCloud seed: a small disk labelled CIDATA from which cloud-init takes a machine's user data, as it
// would from a cloud's metadata service. We write its FAT file system ourselves, which spares users a tool.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "api_client/base/result.hpp"

namespace tnr::local {

// Clouds allow 16 KiB (AWS) to 64 KiB and more; ours is generous so that it is never the one that refuses.
inline constexpr size_t user_data_bytes_max = size_t{1} << 20;

// A FAT16 disk with these files (name, content) in its root folder. Names are printable ASCII, at most 26 bytes.
std::string fat_image(const std::string& label, const std::vector<std::pair<std::string, std::string>>& files);

// The seed for a machine. Its instance id names this very machine: cloud-init runs once, not again after a restart.
Result<std::string> seed_image(const std::string& name, const std::string& instance_id, const std::string& user_data);

}  // namespace tnr::local
