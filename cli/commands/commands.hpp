// The grammar of the command line: one add_… a command, in the file of that command.
#pragma once

#include "cli/grammar.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

void add_start(Grammar& tnr, Session& session);
void add_connect(Grammar& tnr, Session& session);
void add_run(Grammar& tnr, Session& session);
void add_sync(Grammar& tnr, Session& session);
void add_status(Grammar& tnr, Session& session);
void add_stop(Grammar& tnr, Session& session);
void add_delete(Grammar& tnr, Session& session);
void add_login(Grammar& tnr, Session& session);
void add_logout(Grammar& tnr, Session& session);
void add_whoami(Grammar& tnr, Session& session);
// Below `tnr login` and `tnr logout`: one command for each cloud.
void add_cloud_logins(Grammar& login, Session& session);
void add_cloud_logouts(Grammar& logout, Session& session);
void add_support(Grammar& tnr, Session& session);
void add_version(Grammar& tnr, Session& session);
void add_completion(Grammar& tnr, Session& session);

// All of them, in the order `tnr --help` shows.
void add_commands(Grammar& tnr, Session& session);

}  // namespace tnr::cli
