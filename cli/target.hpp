// How SSH reaches a machine of ours.
#pragma once

#include "api_client/provider.hpp"
#include "cli/machine_access.hpp"
#include "cli/records.hpp"
#include "cli/ssh/client.hpp"
#include "cli/user_data.hpp"

namespace tnr::cli {

// Where this computer keeps the key that opens the machine, in the user's configuration `folder`: keys/NAME, a pair for
// each machine, so that whoever gets hold of one has no other machine. Those made by older tnr share ssh_key.
std::string login_key_path(const std::string& folder, const Record& record);
// The key in that file. Kind auth when it is lost or holds another key than the machine was made with: that machine will
// never let us in.
Result<ssh::KeyPair> login_key(const Record& record, const std::string& folder);
// The same for a machine that is about to be made, as the record then says; an order that is repeated has the same.
Result<ssh::KeyPair> make_login_key(Record& record, const std::string& folder);
// Where there is no machine of this name any more.
Result<> forget_login_key(const std::string& name, const std::string& folder);

Result<ssh::Target> ssh_target(const Machine& machine, const Record& record, const std::string& folder);

}  // namespace tnr::cli
