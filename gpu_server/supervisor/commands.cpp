// See commands.hpp.
#include "gpu_server/supervisor/commands.hpp"

#include <algorithm>
#include <ctime>
#include <iomanip>
#include <ostream>

#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/image_cache.hpp"
#include "gpu_server/supervisor/request.hpp"
#include "gpu_server/supervisor/state_folder.hpp"

namespace tnr::server {

// What the client shall connect to. A wildcard is no address one can reach.
static Result<std::string> address_for_clients(const EnrollOptions& options, const StateFolder& folder) {
    std::string address = options.address.empty() ? folder.last_address() : options.address;
    if (address.empty())
        return Error{Error::Kind::usage, "the server has not run yet, so its address is not known",
                     "start it first, or add --address tcp://HOST:14900"};
    auto parsed = parse_endpoint(address);
    if (!parsed) return parsed.error();
    if (parsed->wildcard())
        return Error{Error::Kind::usage, "the server listens on all addresses: " + address,
                     "say how clients reach it: --address tcp://HOST:" + std::to_string(parsed->port)};
    return address;
}

Result<> enroll(const EnrollOptions& options, std::ostream& out) {
    if (!is_name(options.name))
        return Error{Error::Kind::usage, "'" + options.name + "' is no name",
                     "letters, digits, '-', '_' and '.', at most 64"};
    auto folder = StateFolder::open(options.state);
    if (!folder) return folder.error();
    if (options.address.empty() && folder->last_was_plain())
        return Error{Error::Kind::usage, "this server runs with --plain, without keys: nobody can sign in to it",
                     "clients on this machine need none: tnr run --pool " + folder->last_address() +
                         " …; for a server that is to have keys, add --address tcp://HOST:14900"};
    auto address = address_for_clients(options, *folder);
    if (!address) return address.error();
    auto server = folder->server_keys();
    if (!server) return server.error();
    auto store = open_sqlite_store(folder->database());
    if (!store) return store.error();
    auto keys = make_pasteable_key_pair();
    if (auto added = (*store)->add_account(options.name, keys.public_key, options.replace); !added)
        return added.error();
    // Quoted: the alphabet of keys has characters that shells read. The secret is in no process's arguments: shells have an
    // echo of their own.
    out << "echo '" << keys.secret_key << "' | tnr login pool " << *address << " '" << server->public_key << "'\n";
    return Ok{};
}

std::string date(int64_t ms) {
    time_t seconds = ms / 1000;
    tm parts{};
    gmtime_r(&seconds, &parts);
    char text[24];
    strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
    return text;
}

Result<> list_keys(const std::string& state, std::ostream& out) {
    auto folder = StateFolder::find(state);
    if (!folder) return folder.error();
    auto store = open_sqlite_store(folder->database());
    if (!store) return store.error();
    auto keys = (*store)->keys();
    if (!keys) return keys.error();
    size_t account = 7, machine = 7;
    for (auto& key : *keys) {
        account = std::max(account, key.owner.account.size());
        machine = std::max(machine, key.owner.machine.size());
    }
    auto row = [&](const std::string& a, const std::string& b, const std::string& c, const std::string& d) {
        out << std::left << std::setw(static_cast<int>(account) + 2) << a << std::setw(static_cast<int>(machine) + 2)
            << b << std::setw(18) << c << d << "\n";
    };
    row("ACCOUNT", "MACHINE", "ENROLLED (UTC)", "PUBLIC KEY");
    for (auto& key : *keys)
        row(key.owner.account, key.owner.machine.empty() ? "-" : key.owner.machine, date(key.enrolled_ms),
            key.public_key);
    return Ok{};
}

Result<> forget_account(const std::string& name, const std::string& state, std::ostream& out) {
    auto folder = StateFolder::find(state);
    if (!folder) return folder.error();
    auto store = open_sqlite_store(folder->database());
    if (!store) return store.error();
    if (auto removed = (*store)->remove_account(name); !removed) return removed.error();
    // A server that runs finds them gone when it looks for one, and takes no new ones of an unknown account.
    std::error_code error;
    std::filesystem::remove_all(folder->images() / image_tenant(name, ""), error);
    out << "Forgot " << name << "\n";
    return Ok{};
}

Result<> limit_account(const LimitOptions& options, std::ostream& out) {
    auto folder = StateFolder::find(options.state);
    if (!folder) return folder.error();
    auto store = open_sqlite_store(folder->database());
    if (!store) return store.error();
    auto limits = (*store)->limits(options.name);
    if (!limits) return limits.error();
    if (options.gpus) limits->gpus_max = *options.gpus > 0 ? options.gpus : std::nullopt;
    if (options.weight) limits->weight = *options.weight;
    if (auto set = (*store)->set_limits(options.name, *limits); !set) return set;
    out << options.name << " may use "
        << (limits->gpus_max ? "at most " + std::to_string(*limits->gpus_max) + " GPUs at once" : "all GPUs")
        << "; its weight in the queue is " << limits->weight << "\n";
    return Ok{};
}

}  // namespace tnr::server
