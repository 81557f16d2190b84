// `tnr login pool` and `tnr logout pool`: the line that `tnr-gpu-server enroll NAME` prints is this command, ready to
// paste.
#include "cli/commands/login.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.hpp"

namespace tnr::cli {
namespace {

Result<PoolLogin> checked(const LoginOptions& options) {
    if (auto endpoint = parse_endpoint(options.address); !endpoint) return endpoint.error();
    Error bad{Error::Kind::usage, "",
              "paste the whole line that `tnr-gpu-server enroll NAME` printed, in quotes as it is"};
    if (!wire::looks_like_key(options.server_key)) {
        bad.what = "the server's key is not one: it has 40 characters of Z85";
        return bad;
    }
    std::string public_key = wire::public_of(options.client_secret);
    if (public_key.empty()) {
        bad.what = "your key is not one: it has 40 characters of Z85";
        return bad;
    }
    return PoolLogin{options.address, {options.server_key, {public_key, options.client_secret}}};
}

}  // namespace

Result<> login_pool(Session& session, const LoginOptions& options) {
    auto login = checked(options);
    if (!login) return login.error();
    auto pool = session.pool(*login);
    if (!pool) return pool.error();
    auto role = (*pool)->hello();
    if (!role) return role.error();
    if (*role == "machine")
        return Error{Error::Kind::auth, "that key belongs to a machine, not to a person",
                     "use the line of `tnr-gpu-server enroll NAME`"};
    if (auto saved = session.logins().save(*login); !saved) return saved;
    if (session.json)
        session.out << nlohmann::json{{"pool", login->address}, {"role", *role}}.dump(2) << "\n";
    else
        session.out << "Signed in to the pool at " << login->address
                    << "; it is the default now. `tnr status` shows its GPUs\n";
    return Ok{};
}

Result<> logout_pool(Session& session, const std::string& address) {
    if (auto removed = session.logins().remove(address); !removed) return removed;
    if (session.json)
        session.out << nlohmann::json{{"pool", address}, {"signed_in", false}}.dump(2) << "\n";
    else
        session.out << "Forgot the key for the pool at " << address << " on this computer\n";
    return Ok{};
}

void add_logout(CLI::App& app, Session& session) {
    auto* logout = app.add_subcommand("logout", "Forget a pool of GPUs and your key for it");
    logout->require_subcommand(1);
    auto address = std::make_shared<std::string>();
    auto* command = logout->add_subcommand("pool", "Forget a pool");
    command->add_option("address", *address, "tcp://HOST:PORT, as `tnr status` shows it")->required();
    command->footer("The pool itself still knows the key; `tnr-gpu-server` forgets it there.");
    command->callback([&session, address] { session.result = logout_pool(session, *address); });
}

void add_login(CLI::App& app, Session& session) {
    auto* login = app.add_subcommand("login", "Sign in to a pool of GPUs");
    login->require_subcommand(1);
    auto options = std::make_shared<LoginOptions>();
    auto* command = login->add_subcommand("pool", "Remember a pool and your key for it");
    command->add_option("address", options->address, "tcp://HOST:PORT")->required();
    command->add_option("server_key", options->server_key, "The server's public key")->required();
    command->add_option("secret_key", options->client_secret, "Your secret key for it")->required();
    command->footer(
        "On the pool's server `tnr-gpu-server enroll NAME` prints this whole line, ready to paste. The pool is\n"
        "asked before anything is stored; the key is kept in ~/.config/tnr/pool.json, for you alone.");
    command->callback([&session, options] { session.result = login_pool(session, *options); });
}

}  // namespace tnr::cli
