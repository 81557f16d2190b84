// A disk whose power can be cut: a SQLite VFS over the system's that remembers of each file what was written since its
// last sync. What a power cut leaves is in the worst case what was synced, and nothing else.
#pragma once

#include <sqlite3.h>

#include <map>
#include <string>

namespace tnr::test {

// Files that are opened while one lives are on it. One at a time, and it outlives all databases on it.
class UnsteadyDisk {
public:
    UnsteadyDisk();
    ~UnsteadyDisk();
    UnsteadyDisk(const UnsteadyDisk&) = delete;
    UnsteadyDisk& operator=(const UnsteadyDisk&) = delete;
    // Writes what a power cut would have left of `database` (and its write-ahead log) now to another place.
    void cut_power(const std::string& database, const std::string& left_at) const;
    int syncs = 0;

    // For the VFS.
    std::map<std::string, std::string> durable;  // file → what of it is on the disk
    sqlite3_vfs* below = nullptr;

private:
    sqlite3_vfs above_{};
};

}  // namespace tnr::test
