// `tnr sync`: copy files to or from a machine.
#pragma once

#include "cli/session.hpp"
#include "cli/sync/copy.hpp"

namespace tnr::cli {

struct SyncOptions {
    std::string from;
    std::string to;
};

Result<> sync_files(Session& session, const SyncOptions& options);
// The copying alone, once there is a connection.
Result<sync::Tally> sync_over(ssh::Sftp& sftp, const SyncOptions& options, const sync::Watch& watch);

}  // namespace tnr::cli
