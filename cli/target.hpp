// How SSH reaches a machine of ours.
#pragma once

#include "api_client/provider.hpp"
#include "cli/records.hpp"
#include "cli/ssh/client.hpp"
#include "cli/user_data.hpp"

namespace tnr::cli {

// `key_path` holds this computer's own SSH key; it is made when missing.
Result<ssh::Target> ssh_target(const Machine& machine, const Record& record, const std::string& key_path);

}  // namespace tnr::cli
