// `tnr login pool` and `tnr logout pool`: the line that `tnr-gpu-server user add NAME` prints is this command, ready to
// paste. With a token (`--token`) the key is made here, and only its public half leaves this computer.
#include "cli/commands/login.hpp"

#include <set>

#include "api_client/base/files.hpp"
#include "api_client/base/interrupt.hpp"
#include "cli/ask.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"

namespace tnr::cli {
namespace {

constexpr const char* paste_hint =
    "On the pool's server `tnr-gpu-server user add NAME --token` prints this whole line, ready to paste:\n"
    "  echo 'TOKEN' | tnr login pool tcp://gpu-node.example:14900 'SERVER KEY'";

Result<std::string> secret_of(Session& session, const LoginOptions& options) {
    if (!options.client_secret.empty()) return options.client_secret;
    std::string line;
    if (options.secret_file.empty() || options.secret_file == "-") {
        auto answer = ask(session, "Your token or key for the pool: ");
        if (!answer) return answer.error();
        line = answer->value_or("");
    } else {
        auto read = read_users_line(options.secret_file, waiting_for(session, options.secret_file));
        if (!read && interrupt::interrupted()) return read.error();
        if (!read)
            return Error{Error::Kind::usage, "cannot read your token or key: " + read.error().what,
                         "the file has one line, the token or key"};
        line = *read;
    }
    line.erase(line.find_last_not_of(" \t\r") + 1);
    return line;
}

Error not_the_line(const std::string& what) {
    return {Error::Kind::usage, what,
            "paste the whole line that `tnr-gpu-server user add NAME` printed, in quotes as it is"};
}

// The first of our keys that the server there lets in, the newest first.
Result<PoolLogin> with_our_key(Session& session, const LoginOptions& options) {
    if (!options.client_secret.empty() || !options.secret_file.empty())
        return Error{Error::Kind::usage, "--same-key is for a key that you have already", "leave out one of them"};
    auto logins = session.logins().all();
    if (!logins) return logins.error();
    ui::Progress progress(session.screen());
    progress.begin("trying your keys at " + options.address, asking_patience);
    std::set<std::string> tried;
    for (auto login = logins->rbegin(); login != logins->rend(); ++login) {
        if (!tried.insert(login->keys.own.public_key).second) continue;
        PoolLogin there{options.address, {options.server_key, login->keys.own}};
        auto pool = session.pool(there);
        if (!pool) return pool.error();
        auto hello = (*pool)->hello();
        if (hello) return there;
        if (hello.error().kind != Error::Kind::auth) return hello.error();
    }
    return Error{Error::Kind::auth,
                 tried.empty() ? "you are signed in to no pool, so there is no key to try"
                               : "the pool at " + options.address + " lets none of your keys in",
                 "`tnr-gpu-server user add NAME --token` on the pool's server prints the line to sign in with"};
}

Result<PoolLogin> checked(Session& session, const LoginOptions& options) {
    if (auto endpoint = parse_endpoint(options.address); !endpoint) return endpoint.error();
    if (!wire::looks_like_key(options.server_key))
        return not_the_line("the server's key is not one: it has 40 characters of Z85");
    if (options.same_key) return with_our_key(session, options);
    auto secret = secret_of(session, options);
    if (!secret) return secret.error();
    if (secret->starts_with(wire::token_prefix)) secret->erase(0, std::string_view(wire::token_prefix).size());
    std::string public_key = wire::public_of(*secret);
    if (public_key.empty()) return not_the_line("your token or key is not one: a key has 40 characters of Z85");
    return PoolLogin{options.address, {options.server_key, {public_key, *secret}}};
}

// A key pair of our own for the token's, whose secret somebody else has had in their hands. A token is good for one key only,
// so that is on the disk before; a pool takes the same one again.
Result<> trade_token(Session& session, Pool& pool, PoolLogin& login) {
    auto logins = session.logins();
    if (auto readable = logins.all(); !readable) return readable.error();
    const std::string token = login.keys.own.public_key;
    auto own = logins.key_for_token(token);
    if (!own) return own.error();
    if (auto done = pool.redeem_token(own->public_key); !done) {
        if (done.error().kind == Error::Kind::auth) (void)logins.forget_token(token);  // it will never be good
        return done;
    }
    login.keys.own = *own;
    return Ok{};
}

Error not_let_in(const std::string& address) {
    return {Error::Kind::auth, "the pool at " + address + " does not let in that token or key",
            "only a user's newest token is good, and for a while: `tnr-gpu-server user add NAME --token` on the pool's "
            "server prints a new line to sign in with"};
}

// Another `tnr login` with the same token, which its key was traded for meanwhile: pasted twice.
bool another_has_signed_in(Session& session, const PoolLogin& login, const Result<PoolLogin>& before) {
    auto now = session.logins().find(login.address);
    if (!now || now->keys.server_public != login.keys.server_public) return false;
    return !before || before->keys.own.public_key != now->keys.own.public_key;
}

}  // namespace

Result<> login_pool(Session& session, const LoginOptions& options) {
    auto login = checked(session, options);
    if (!login) return login.error();
    const auto before = session.logins().find(login->address);
    auto pool = session.pool(*login);
    if (!pool) return pool.error();
    ui::Progress progress(session.screen());
    progress.begin("asking the pool at " + login->address, asking_patience);
    auto hello = (*pool)->hello();
    if (!hello) return hello.error().kind == Error::Kind::auth ? not_let_in(login->address) : hello.error();
    std::string role = hello->role;
    login->pool = hello->pool;
    const std::string token = role == "token" ? login->keys.own.public_key : "";
    if (!token.empty()) {
        auto traded = trade_token(session, **pool, *login);
        const bool used = !traded && traded.error().kind == Error::Kind::auth;
        if (used && another_has_signed_in(session, *login, before))
            login->keys.own = session.logins().find(login->address)->keys.own;
        else if (!traded)
            return traded;
        role = "account";
    }
    progress.end();
    if (role == "machine")
        return Error{Error::Kind::auth, "that key belongs to a machine, not to a person",
                     "use the line of `tnr-gpu-server user add NAME`"};
    if (auto saved = session.logins().save(*login); !saved) return saved;
    if (!token.empty()) (void)session.logins().forget_token(token);  // kept twice, its key does no harm
    if (session.json)
        print_document(session, "login pool", {{"pool", login->address}, {"role", role}, {"signed_in", true}});
    else
        session.out << "Signed in to the pool at " << login->address
                    << "; it is the default now. `tnr status` shows its GPUs\n";
    return Ok{};
}

Result<> logout_pool(Session& session, const std::string& address) {
    if (auto removed = session.logins().remove(address); !removed) return removed;
    if (session.json)
        print_document(session, "logout pool", {{"pool", address}, {"role", nullptr}, {"signed_in", false}});
    else
        session.out << "Forgot the key for the pool at " << address << " on this computer\n";
    return Ok{};
}

void add_logout(Grammar& tnr, Session& session) {
    auto logout = tnr.command("logout", "Forget a pool of GPUs or a cloud, and your key for it");
    logout.requires_command();
    logout.footer("Example:\n  tnr logout pool tcp://gpu-node.example:14900");
    auto address = std::make_shared<std::string>();
    auto command = logout.command("pool", "Forget a pool");
    command.required("address", *address, "tcp://HOST:PORT, as `tnr status` shows it");
    command.footer(
        "Your machines keep their own keys and their GPUs. The pool still knows your key: on its server,\n"
        "`tnr-gpu-server user add NAME --token --replace` makes it worthless.\n\n"
        "Example:\n  tnr logout pool tcp://gpu-node.example:14900");
    command.run([&session, address] { session.result = logout_pool(session, *address); });
    add_cloud_logouts(logout, session);
}

void add_login(Grammar& tnr, Session& session) {
    auto login = tnr.command("login", "Sign in to a pool of GPUs or to a cloud");
    login.requires_command();
    login.footer(std::string(paste_hint) + "\n\nExamples:\n  tnr login hetzner\n  tnr whoami");
    auto options = std::make_shared<LoginOptions>();
    auto command = login.command("pool", "Remember a pool and your key for it");
    command.required("address", options->address, "tcp://HOST:PORT");
    command.required("server_key", options->server_key, "The server's public key");
    command.option("secret_key", options->client_secret,
                   "Your token or secret key for it (default: the first line of standard input)");
    command.option("--secret-file", options->secret_file,
                   "File (or pipe; - for standard input) with your token or secret key, in its first line");
    command.flag("--same-key", options->same_key,
                 "With the key that you have for another node of that pool: each of your keys is tried");
    command.footer(
        std::string(paste_hint) +
        "\nA token is good once: it is traded for a key that is made here and stays here.\n"
        "Token and key can be arguments, too; but then everybody on this computer may see it while the command runs."
        "\n\nYour key is good at all nodes of a pool. Where the one is down that you signed in at, sign in at another; "
        "what\n"
        "`tnr-gpu-server user add NAME` says there, as you are known, ends with this line:\n"
        "  tnr login pool tcp://gpu-node-2.example:14900 'ITS SERVER KEY' --same-key"
        "\n\nThe pool is asked before anything is stored; the key is kept in ~/.config/tnr/pool.json, for you alone.\n"
        "A pool on 127.0.0.1 that was started with --plain needs no sign-in for `tnr run`.");
    command.run([&session, options] { session.result = login_pool(session, *options); });
    add_cloud_logins(login, session);
}

}  // namespace tnr::cli
