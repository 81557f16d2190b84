// The way in for connect and sync.
#include "cli/commands/reach.hpp"

#include "cli/target.hpp"

namespace tnr::cli {
namespace {

constexpr std::chrono::seconds patience{60};

}  // namespace

Result<std::unique_ptr<ssh::Client>> reach(Session& session, const std::string& name) {
    auto known = find_running(session, name);
    if (!known) return known.error();
    auto target = ssh_target(known->machine, known->record, session.config_folder + "/ssh_key");
    if (!target) return target.error();
    std::optional<ui::Progress> progress;  // only when there is a wait to show
    auto client = ssh::connect_when_ready(*target, ssh::Clock::now() + patience, [&](const Error&) {
        if (progress) return;
        progress.emplace(session.err, session.err_is_terminal);
        progress->begin("waiting for SSH on '" + name + "'");
    });
    if (client && progress) progress->end();
    return client;
}

}  // namespace tnr::cli
