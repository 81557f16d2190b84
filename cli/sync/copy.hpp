// Copying a tree to or from a machine over SFTP, where our server (agent.hpp) cannot run.
//
// What is already there with the same size and modification time is left alone; only --delete removes what the source has not. A file arrives under a temporary name beside its place and is renamed when it is whole, with
// its mode and times: under its own name there is always the old file or the new one. What a run that was cut off has left of
// a large file is where the next one goes on (resume.hpp); what nobody goes on with is removed by a later run.
#pragma once

#include <string>

#include "cli/ssh/sftp.hpp"
#include "cli/sync/engine/session.hpp"

namespace tnr::sync {

// How many files are on their way at once: with small files this hides the round trips, three a file.
inline constexpr size_t files_at_once = 32;

// Paths on the machine are relative to the login user's home unless they begin with a slash. That an upload goes to is the final
// place (endpoints.hpp turns what the user wrote into it).
Result<Tally> upload(ssh::Sftp& sftp, const SyncSettings& settings, const Watch& watch);
Result<Tally> download(ssh::Sftp& sftp, const SyncSettings& settings, const Watch& watch);

}  // namespace tnr::sync
