// A folder's content as a flat list, on either side: what there is to copy.
#pragma once

#include <string>
#include <vector>

#include "cli/ssh/sftp.hpp"

namespace tnr::sync {

enum class Kind { file, folder, link, other };  // other: sockets, devices; told of and left out

struct Item {
    std::string path;  // below the root; empty for the root itself. A folder comes before what is in it.
    Kind kind = Kind::other;
    uint64_t size = 0;
    uint32_t mode = 0;          // permission bits alone
    bool special = false;       // it has setuid, setgid or sticky bits, which mean something on its own machine only
    bool other_time = false;    // its time is none that SFTP has, and `mtime` the nearest
    uint32_t mtime = 0;         // seconds
    std::string leads_to = {};  // a link's text
};

Kind kind_of(uint32_t mode);  // from stat's mode
Item item_of(const std::string& path, const ssh::Attributes& attributes);

// Everything at and below `root`. Links below it are kept as links; the root itself is followed, so that naming a
// link to a folder copies the folder. Kind not_found when there is no root; what cannot be read below it is left out and
// told in `unreadable`. Temporary files of ours are left out.
Result<std::vector<Item>> local_tree(const std::string& root, std::vector<Error>& unreadable);
Result<std::vector<Item>> remote_tree(ssh::Sftp& sftp, const std::string& root, const std::string& machine,
                                      std::vector<Error>& unreadable);

// "root/path", or just one of them when the other is empty.
std::string joined(const std::string& root, const std::string& path);

// A server's refusal to write something in the user's words. `path` is on the machine.
Error refusal(const ssh::Reply& reply, const std::string& doing, const std::string& path, const std::string& machine);

// Its refusal to read something.
Error unreadable_there(const ssh::Reply& reply, const std::string& path, const std::string& machine);

}  // namespace tnr::sync
