// Trees as SFTP shows them: what there is to copy when only SFTP is there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/ssh/sftp.hpp"
#include "cli/sync/engine/ignore.hpp"
#include "cli/sync/engine/session.hpp"
#include "cli/sync/engine/tree.hpp"

namespace tnr::sync {

Item item_of(const std::string& path, const ssh::Attributes& attributes);
// The nearest time that SFTP has; it counts the seconds from 1970 to 2106.
uint32_t sftp_time(const Item& item);

struct Tree {
    std::vector<Item> items;  // in the order of their paths: a folder comes before what is in it
    std::map<std::string, std::shared_ptr<const IgnoreRules>>
        rules;  // that hold in a folder; none where there are none
};
// Everything at and below the source, as walk_tree does. What cannot be read below it is told in the tally, and what rules leave
// out.
Result<Tree> local_tree(const SyncSettings& settings, Tally& tally);
Result<Tree> remote_tree(ssh::Sftp& sftp, const SyncSettings& settings, Tally& tally);
// All that is in a folder on the machine, temporary files of ours as well.
Result<std::vector<Item>> everything_in(ssh::Sftp& sftp, const std::string& folder, const std::string& machine,
                                        Tally& tally);
// A link on the machine to something outside of `root` (another disk) stands for that: says what it is. Those that lead into the
// root, to a folder above it, or nowhere, are but links (Destination::leads_outside).
void follow_outside(ssh::Sftp& sftp, const std::string& root, const std::string& link,
                    std::function<void(const ssh::Attributes&)> found);
// A path without its last part; empty when it has but one.
std::string folder_of(const std::string& path);

// What --delete takes away from a tree on the machine.
struct Extra {
    std::string path;  // below the destination
    Kind kind = Kind::other;
};
// Removes it with all in it that the rules of its folder do not protect; true: nothing of it is left. What cannot be removed is
// told in the tally. Waits for what is in flight.
Result<bool> remove_there(ssh::Sftp& sftp, const SyncSettings& settings, const Extra& extra, const IgnoreRules* rules,
                          Tally& tally);

// A server's refusal to write something in the user's words. `path` is on the machine.
Error refusal(const ssh::Reply& reply, const std::string& doing, const std::string& path, const std::string& machine);
// Its refusal to read something.
Error unreadable_there(const ssh::Reply& reply, const std::string& path, const std::string& machine);

}  // namespace tnr::sync
