#include "cli/commands/commands.hpp"
namespace tnr::cli {
void add_sync(CLI::App&, Session&) {}
}  // namespace tnr::cli
