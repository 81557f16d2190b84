// `tnr delete`: remove machines, their disks, and all that tnr knew of them.
#pragma once

#include <string>
#include <vector>

#include "cli/session.hpp"

namespace tnr::cli {

struct DeleteOptions {
    std::vector<std::string> names;
    std::string provider = {};  // where to look; empty: where the record says, without one everywhere
    bool yes = false;
    bool dry_run = false;
};

// Each of them, whatever becomes of the others. When the user says no: exit code 1, and nothing is changed.
Result<> delete_machines(Session& session, const DeleteOptions& options);

}  // namespace tnr::cli
