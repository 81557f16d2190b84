// The way that `tnr sync` normally goes: over one channel to a server of ours on the machine (server/main.cpp), which `tnr` carries
// and brings there once, into the login user's cache folder. What is there is used only when it is, by its hash, the very
// one that this tnr carries.
#pragma once

#include <string>

#include "cli/ssh/client.hpp"
#include "cli/sync/engine/session.hpp"

namespace tnr::sync {

// One sync. `up`: to the machine. `settings` are this end's; the server hears what it needs of them. Our own end begins at once:
// while the machine starts the server, it walks the tree.
// When the machine cannot run the server (another architecture, a home without programs, an old system) `unusable` says why;
// nothing was copied then, and SFTP may still do it.
Result<Tally> sync_by_server(ssh::Client& client, const SyncSettings& settings, bool up, const Watch& watch,
                             std::string& unusable);

}  // namespace tnr::sync
