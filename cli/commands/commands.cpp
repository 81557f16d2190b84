// See commands.hpp.
#include "cli/commands/commands.hpp"

namespace tnr::cli {

void add_commands(Grammar& tnr, Session& session) {
#define TNR_ADD_COMMAND(name) add_##name(tnr, session);
    TNR_COMMANDS(TNR_ADD_COMMAND)
#undef TNR_ADD_COMMAND
}

}  // namespace tnr::cli
