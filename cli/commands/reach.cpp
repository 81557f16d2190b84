// The way in for connect and sync.
#include "cli/commands/reach.hpp"

#include "cli/target.hpp"

namespace tnr::cli {

Result<std::unique_ptr<ssh::Client>> reach(Session& session, const std::string& name,
                                           std::chrono::milliseconds patience) {
    auto known = find_running(session, name);
    if (!known) return known.error();
    auto target = ssh_target(known->machine, known->record, session.config_folder + "/ssh_key");
    if (!target) return target.error();
    std::optional<ui::Progress> progress;  // only when there is a wait to show
    auto client = ssh::connect_when_ready(*target, ssh::Clock::now() + patience, [&](const Error&) -> Result<> {
        if (progress) return Ok{};
        progress.emplace(session.err, session.err_is_terminal);
        progress->begin("waiting for SSH on '" + name + "'");
        return Ok{};
    });
    if (client && progress) progress->end();
    if (client || client.error().kind != Error::Kind::network) return client;
    return Error{Error::Kind::network, client.error().what,
                 "its provider says that it runs; when SSH is stopped there or a firewall is in the way, `tnr stop " +
                     name + "` and then `tnr start " + name + "` may bring it back"};
}

}  // namespace tnr::cli
