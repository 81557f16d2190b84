// The grammar of the command line: one add_… a command, in the file of that command.
#pragma once

#include "cli/session.hpp"

namespace CLI {
class App;
}

namespace tnr::cli {

void add_start(CLI::App& app, Session& session);
void add_connect(CLI::App& app, Session& session);
void add_run(CLI::App& app, Session& session);
void add_sync(CLI::App& app, Session& session);
void add_status(CLI::App& app, Session& session);
void add_stop(CLI::App& app, Session& session);
void add_delete(CLI::App& app, Session& session);
void add_login(CLI::App& app, Session& session);
void add_logout(CLI::App& app, Session& session);
void add_version(CLI::App& app, Session& session);

// All of them, in the order `tnr --help` shows.
void add_commands(CLI::App& app, Session& session);

}  // namespace tnr::cli
