// Trees as SFTP shows them: what there is to copy when only SFTP is there.
#pragma once

#include <string>
#include <vector>

#include "cli/ssh/sftp.hpp"
#include "cli/sync/engine/session.hpp"
#include "cli/sync/engine/tree.hpp"

namespace tnr::sync {

Item item_of(const std::string& path, const ssh::Attributes& attributes);
// The nearest time that SFTP has; it counts the seconds from 1970 to 2106.
uint32_t sftp_time(const Item& item);

// Everything at and below `root`, as walk_tree does. What cannot be read below it is told in the tally, and what rules leave out.
// On a machine .gitignore and .tnrignore are files like any other.
Result<std::vector<Item>> local_tree(const std::string& root, bool ignore, Tally& tally);
Result<std::vector<Item>> remote_tree(ssh::Sftp& sftp, const std::string& root, const std::string& machine,
                                      Tally& tally);

// A server's refusal to write something in the user's words. `path` is on the machine.
Error refusal(const ssh::Reply& reply, const std::string& doing, const std::string& path, const std::string& machine);
// Its refusal to read something.
Error unreadable_there(const ssh::Reply& reply, const std::string& path, const std::string& machine);

}  // namespace tnr::sync
