// What makes plain `ssh demo`, scp, rsync and editors reach machines: one file a machine, in a folder of ours, which
// ~/.ssh/config includes once its user has asked for that. A machine's files are written and removed whole, so no name
// can be mistaken for another's beginning, and nothing of the user's is ever edited but that one line.
#pragma once

#include <string>

#include "cli/session.hpp"

namespace tnr::cli {

// The `Host` block of a machine that has an address.
std::string ssh_host_block(Session& session, const Record& record, const Machine& machine);

class SshConfig {
public:
    explicit SshConfig(Session& session);

    bool written() const;  // include() has been called, and remove_all() not since
    // The line at the very top of ~/.ssh/config: below a `Host` it would belong to that host. Again: nothing changes.
    Result<> include();
    Result<> remove_all();

    // Both do nothing unless written(). A machine without an address keeps the block it had.
    Result<> put(const Record& record, const Machine& machine);
    Result<> remove(const std::string& name);

    std::string user_file() const;  // ~/.ssh/config, where it really is
    std::string known_hosts(const std::string& name) const;

private:
    std::string include_line() const;
    Result<std::string> without_our_lines() const;

    Session& session_;
    std::string folder_;
};

}  // namespace tnr::cli
