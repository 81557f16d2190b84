// How SSH reaches a machine of ours.
#pragma once

#include "api_client/provider.hpp"
#include "cli/machine_access.hpp"
#include "cli/records.hpp"
#include "cli/ssh/client.hpp"
#include "cli/user_data.hpp"

namespace tnr::cli {

struct Session;

// This computer's own SSH key, from the file `key_path`, for a machine that was made with it. Kind auth when the file is
// lost or holds another key: that machine will never let us in.
Result<ssh::KeyPair> login_key(const Record& record, const std::string& key_path);
// The same key for a machine that is about to be made; made when missing, with a word on the machines that know another.
Result<ssh::KeyPair> own_login_key(Session& session, const std::string& machine, const Say& say);
Result<ssh::Target> ssh_target(const Machine& machine, const Record& record, const std::string& key_path);

}  // namespace tnr::cli
