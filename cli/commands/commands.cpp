// The list of commands.
#include "cli/commands/commands.hpp"

namespace tnr::cli {

void add_commands(Grammar& tnr, Session& session) {
    add_start(tnr, session);
    add_connect(tnr, session);
    add_sync(tnr, session);
    add_status(tnr, session);
    add_stop(tnr, session);
    add_delete(tnr, session);
    add_run(tnr, session);
    add_login(tnr, session);
    add_logout(tnr, session);
    add_whoami(tnr, session);
    add_support(tnr, session);
    add_version(tnr, session);
    add_completion(tnr, session);
}

}  // namespace tnr::cli
