// `tnr version`: what this is, and what it carries for machines.
#include "cli/commands/version.hpp"

#include "cli/commands/commands.hpp"
#include "cli/install/embedded.hpp"
#include "cli/json_out.hpp"
#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/limits.hpp"

namespace tnr::cli {

Result<> version(Session& session) {
    auto files = install::embedded_files();
    if (session.json) {
        auto carried = nlohmann::json::array();
        for (const auto& file : files) carried.push_back({{"name", file.name}, {"sha256", file.sha256()}});
        print_document(session, "version",
                       {{"version", control::version()},
                        {"protocol", wire::protocol_version},
                        {"protocol_table", control::table_hash()},
                        {"carries", carried}});
        return Ok{};
    }
    session.out << "tnr " << control::version() << " (protocol " << wire::protocol_version << ", call table "
                << control::table_hash() << ")\ncarries:";
    for (const auto& file : files) session.out << " " << file.name;
    session.out << "\n";
    return Ok{};
}

void add_version(Grammar& tnr, Session& session) {
    auto command = tnr.command("version", "Show the version, and the libraries this tnr carries");
    command.footer(
        "A pool's server takes its own protocol version and the one before it; call tables may differ.\n\n"
        "Example:\n  tnr version --json");
    command.run([&session] { session.result = version(session); });
}

}  // namespace tnr::cli
