// `tnr delete`: remove a machine, its disk, and all that tnr knew of it.
#pragma once

#include "cli/session.hpp"

namespace tnr::cli {

struct DeleteOptions {
    std::string name;
    std::string provider = {};  // where to look for a machine we have no record of; empty: `local`
    bool yes = false;
    bool dry_run = false;
};

Result<> delete_machine(Session& session, const DeleteOptions& options);

}  // namespace tnr::cli
