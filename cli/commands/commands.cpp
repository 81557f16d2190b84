// The list of commands.
#include "cli/commands/commands.hpp"

namespace tnr::cli {

void add_commands(CLI::App& app, Session& session) {
    add_start(app, session);
    add_connect(app, session);
    add_sync(app, session);
    add_status(app, session);
    add_stop(app, session);
    add_delete(app, session);
    add_run(app, session);
    add_login(app, session);
    add_logout(app, session);
    add_version(app, session);
}

}  // namespace tnr::cli
