// See reach.hpp.
#include "cli/commands/reach.hpp"

#include "cli/logins.hpp"
#include "cli/target.hpp"

namespace tnr::cli {
namespace {

// A healthy machine greets within this; whoever waits longer wants to know for what.
constexpr std::chrono::seconds greeting_patience{2};

}  // namespace

Result<std::unique_ptr<ssh::Client>> reach(Session& session, const std::string& name,
                                           std::chrono::milliseconds patience) {
    auto known = find_running(session, name);
    if (!known) return known.error();
    auto target = ssh_target(known->machine, known->record, session.config_folder);
    if (!target) return target.error();
    ui::Progress progress(session.screen());
    progress.begin("waiting for SSH on '" + name + "'", greeting_patience);
    progress.note("nothing answers at " + target->host + " port " + std::to_string(target->port));
    bool installed = known->record.step >= Step::installed;
    auto client = ssh::connect_when_ready(
        *target, ssh::Clock::now() + patience,
        [&](const Error& error) -> Result<> {
            progress.note(error.kind == Error::Kind::auth ? "it refuses authentication" : error.what);
            progress.show();
            return Ok{};
        },
        installed ? ssh::auth_patience_known : ssh::auth_patience_new);
    if (client) progress.end();
    if (client || client.error().kind != Error::Kind::network) return client;
    return Error{Error::Kind::network, client.error().what,
                 "its provider says that it runs; when SSH is stopped there or a firewall is in the way, `tnr stop " +
                     name + "` and then `tnr start " + name + "` may bring it back"};
}

Result<std::string> pool_address_for(const std::string& pool_host, const std::string& address) {
    auto endpoint = parse_endpoint(address);
    if (!endpoint) return endpoint.error();
    if (!endpoint->loopback()) return address;
    if (!pool_host.empty()) return "tcp://" + pool_host + ":" + std::to_string(endpoint->port);
    return Error{Error::Kind::usage,
                 "the pool's address " + address + " is this computer's own; the machine cannot reach it",
                 "sign in with an address that the machine can reach: `tnr login pool tcp://HOST:PORT …`"};
}

}  // namespace tnr::cli
