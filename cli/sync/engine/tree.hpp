// A folder's content: what there is to copy. Walking one that is on this computer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"

struct stat;

namespace tnr::sync {

class IgnoreRules;

enum class Kind { file, folder, link, other };  // other: sockets, devices; told of and left out

struct Item {
    std::string path;  // below the root; empty for the root itself. A folder comes before what is in it.
    Kind kind = Kind::other;
    uint64_t size = 0;
    uint32_t mode = 0;          // permission bits alone
    bool special = false;       // it has setuid, setgid or sticky bits, which mean something on its own machine only
    int64_t mtime = 0;          // seconds
    uint32_t mtime_ns = 0;      // and nanoseconds
    std::string leads_to = {};  // a link's text
};

// What a new folder has until all is in it: a read-only one can only be filled before it is one. All others have their own
// mode from the start, as far as the umask lets them, so that they have it also where the sync is cut off.
uint32_t mode_while_filling(const Item& folder);

Kind kind_of(uint32_t mode);  // from stat's mode
Item item_of(const std::string& path, const struct stat& found);

// Two ends with the same size and time have the same content. A file system, or SFTP, may have cut the nanoseconds off.
bool same_time(const Item& one, const Item& other);

// Hears what is found, a folder's entries together and before those of its subfolders. `rules` are the ignore rules that hold
// within a folder; null for everything else, and where there are none. False ends the walk, which then is an error.
using Found = std::function<bool(const Item& item, const std::shared_ptr<const IgnoreRules>& rules)>;

struct WalkSettings {
    bool ignore = true;  // leave out what .gitignore and .tnrignore say, and what else git leaves out
    std::function<Error(const std::string& path, int error_number)> cannot_read = {};  // in whose words; empty: our own
};
struct Walked {
    std::vector<Error> unreadable = {};  // what was passed over
    size_t ignored = 0;                  // files, folders and links left out by the rules
};

// Everything at and below `root`. Links below it are kept as links; the root itself is followed, so that naming a
// link to a folder copies the folder. Kind not_found when there is no root; what cannot be read below it is left out.
// Temporary files of ours are left out.
Result<Walked> walk_tree(const std::string& root, const WalkSettings& settings, const Found& found);

// The names in an open folder, but for "." and "..", in no order; 0, or an errno and the names that were read before it.
int names_in(int folder, std::vector<std::string>& names);

// "root/path", or just one of them when the other is empty.
std::string joined(const std::string& root, const std::string& path);

}  // namespace tnr::sync
