// `tnr detach` on the command line; attach.cpp does it.
#include "cli/commands/attach.hpp"
#include "cli/commands/commands.hpp"

namespace tnr::cli {

void add_detach(Grammar& tnr, Session& session) {
    auto name = std::make_shared<std::string>();
    auto command = tnr.command("detach", "Take the GPU from a machine, for programs started from now on");
    command.required("name", *name, "The machine, as `tnr status` shows it");
    command.footer(
        "A program that runs keeps its GPU until it ends. CUDA programs that start later find no GPU.\n\n"
        "Example:\n  tnr detach demo");
    command.run([&session, name] { session.result = detach(session, *name); });
}

}  // namespace tnr::cli
