// `tnr sync`: copy files to or from a machine.
#pragma once

#include "cli/session.hpp"
#include "cli/sync/copy.hpp"

namespace tnr::cli {

struct SyncOptions {
    std::vector<std::string> paths;  // what to copy, and last where to
    bool remove_extra = false;       // --delete
    bool dry_run = false, watch = false, no_ignore = false, verbose = false;
};

Result<> sync_files(Session& session, const SyncOptions& options);

// The copying alone, once there is a connection: from the first path to the second. By our server there; `notes` hears why not,
// when it cannot run and SFTP does what it can.
Result<sync::Tally> sync_over(ssh::Client& client, const SyncOptions& options, const sync::Watch& watch,
                              const std::function<void(const std::string&)>& notes = {});
// By SFTP alone.
Result<sync::Tally> sync_by_sftp(ssh::Sftp& sftp, const SyncOptions& options, const sync::Watch& watch);

}  // namespace tnr::cli
