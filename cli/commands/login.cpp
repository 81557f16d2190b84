// `tnr login pool` and `tnr logout pool`: the line that `tnr-gpu-server enroll NAME` prints is this command, ready to
// paste.
#include "cli/commands/login.hpp"

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

void add_logout(Grammar& tnr, Session& session) {
    auto logout = tnr.command("logout", "Forget a pool of GPUs and your key for it");
    logout.requires_command();
    auto address = std::make_shared<std::string>();
    auto command = logout.command("pool", "Forget a pool");
    command.required("address", *address, "tcp://HOST:PORT, as `tnr status` shows it");
    command.footer("The pool itself still knows the key; `tnr-gpu-server` forgets it there.");
    command.run([&session, address] { session.result = logout_pool(session, *address); });
}

void add_login(Grammar& tnr, Session& session) {
    auto login = tnr.command("login", "Sign in to a pool of GPUs");
    login.requires_command();
    auto options = std::make_shared<LoginOptions>();
    auto command = login.command("pool", "Remember a pool and your key for it");
    command.required("address", options->address, "tcp://HOST:PORT");
    command.required("server_key", options->server_key, "The server's public key");
    command.required("secret_key", options->client_secret, "Your secret key for it");
    command.footer(
        "On the pool's server `tnr-gpu-server enroll NAME` prints this whole line, ready to paste. The pool is\n"
        "asked before anything is stored; the key is kept in ~/.config/tnr/pool.json, for you alone.");
    command.run([&session, options] { session.result = login_pool(session, *options); });
}

}  // namespace tnr::cli
