// See user_commands.hpp.
#include "gpu_server/supervisor/user_commands.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <vector>

#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/pool/audit.hpp"
#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/addresses.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/image_cache.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/print.hpp"
#include "gpu_server/supervisor/request.hpp"
#include "gpu_server/supervisor/state_folder.hpp"

namespace tnr::server {
namespace {

// What the client shall connect to. A wildcard is no address one can reach.
Result<std::string> address_for_clients(const UserAddOptions& options, const StateFolder& folder) {
    std::string address = options.address.empty() ? folder.last_address() : options.address;
    if (address.empty())
        return Error{Error::Kind::usage, "the server has not run yet, so its address is not known",
                     "start it first, or add --address tcp://HOST:14900"};
    auto parsed = parse_endpoint(address);
    if (!parsed) return parsed.error();
    if (parsed->wildcard())
        return Error{Error::Kind::usage, "the server listens on all addresses: " + address,
                     "say how clients reach it: --address tcp://HOST:" + std::to_string(parsed->port)};
    if (!leads_somewhere(*parsed))
        return Error{Error::Kind::usage, "no client can reach " + address,
                     "it looks like tcp://gpu-1.example.org:14900"};
    return address;
}

std::string who_we_are() {
    auto* user = getpwuid(getuid());
    return user ? user->pw_name : "uid " + std::to_string(getuid());
}

void note_change(const StateFolder& folder, const std::string& what) {
    AuditLog(folder.path()).note("commands", {AuditEntry::Kind::changed, who_we_are(), what, "this host"});
}

// The folder that is there, and the store in it.
struct Opened {
    StateFolder folder;
    std::unique_ptr<Store> store;
};
Result<Opened> open_existing(const std::string& state) {
    auto folder = StateFolder::find(state);
    if (!folder) return folder.error();
    auto store = folder->open_store();
    if (!store) return store.error();
    return Opened{*folder, std::move(*store)};
}

std::string role_name(bool is_operator) {
    return is_operator ? "operator" : "user";
}

// At another node of the pool it may be all that was wanted: this one's address and key, with the user's as it is.
Error known_to_the_pool(Error error, const StateFolder& folder, const std::string& address, const std::string& server) {
    auto shared = folder.shared_store();
    if (error.kind == Error::Kind::usage && shared && !shared->empty())
        error.hint += "; who has signed in at another node of the pool signs in here with: tnr login pool " + address +
                      " '" + server + "' --same-key";
    return error;
}

}  // namespace

Result<std::chrono::seconds> parse_duration(const std::string& text, std::chrono::seconds most) {
    const Error wrong{Error::Kind::usage, "'" + text + "' is no time that this can last",
                      "it looks like 90s, 10m, 1h or 7d, and is at most " + std::to_string(most.count() / 86400) + "d"};
    int64_t number = -1;
    auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string unit(rest, text.data() + text.size());
    int64_t seconds = unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : unit == "d" ? 86400 : 0;
    if (failed != std::errc{} || seconds == 0 || number < 0 || number > most.count() / seconds) return wrong;
    return std::chrono::seconds(number * seconds);
}

Result<> user_add(const UserAddOptions& options, std::ostream& out) {
    if (!is_name(options.name))
        return Error{Error::Kind::usage, "'" + options.name + "' is no name",
                     "letters, digits, '-', '_' and '.', at most 64"};
    auto lasts = options.expires.empty() ? token_lasts : parse_duration(options.expires, token_lasts_max);
    if (!lasts) return lasts.error();
    if (!options.expires.empty() && !options.token)
        return Error{Error::Kind::usage, "only a token expires", "add --token"};
    if (lasts->count() == 0) return Error{Error::Kind::usage, "such a token would be good for no time at all"};
    // Without an address there has to have been a server, and a folder of a mistyped name is none.
    auto folder = options.address.empty() ? StateFolder::find(options.state) : StateFolder::open(options.state);
    if (!folder) return folder.error();
    if (options.address.empty() && folder->last_was_plain())
        return Error{Error::Kind::usage, "this server runs with --plain, without keys: nobody can sign in to it",
                     "clients on this machine need none: tnr run --pool " + folder->last_address() +
                         " …; for a server that is to have keys, add --address tcp://HOST:14900"};
    auto address = address_for_clients(options, *folder);
    if (!address) return address.error();
    auto server = folder->server_keys();
    if (!server) return server.error();
    auto store = folder->open_store();
    if (!store) return store.error();
    auto keys = make_pasteable_key_pair();
    const int64_t now = now_ms(), until = now + lasts->count() * 1000;
    auto added = options.token ? (*store)->add_token({keys.public_key, options.name, now, until}, options.replace)
                               : (*store)->add_account(options.name, keys.public_key, options.replace);
    if (!added && !options.replace) return known_to_the_pool(added.error(), *folder, *address, server->public_key);
    if (!added) return added;
    if (options.is_operator) {
        auto limits = (*store)->limits(options.name);
        if (!limits) return limits.error();
        limits->is_operator = true;
        if (auto set = (*store)->set_limits(options.name, *limits); !set) return set;
    }
    note_change(*folder, "added " + std::string(options.is_operator ? "operator " : "user ") + options.name +
                             (options.token ? ", with a token until " + date(until) : "") +
                             (options.replace ? ", replacing all earlier keys" : ""));
    // Quoted: the alphabet of keys has characters that shells read. The secret is in no process's arguments: shells have an
    // echo of their own.
    out << "echo '" << (options.token ? wire::token_prefix : "") << keys.secret_key << "' | tnr login pool " << *address
        << " '" << server->public_key << "'\n";
    return Ok{};
}

Result<> user_list(const std::string& state, std::ostream& out) {
    auto opened = open_existing(state);
    if (!opened) return opened.error();
    auto keys = opened->store->keys();
    if (!keys) return keys.error();
    auto tokens = opened->store->tokens();
    if (!tokens) return tokens.error();
    std::vector<std::vector<std::string>> rows{
        {"USER", "MACHINE", "ROLE", "GPUS", "MEMORY OF EACH", "WEIGHT", "PRIORITY", "SINCE (UTC)", "PUBLIC KEY"}};
    auto add = [&](const std::string& account, const std::string& machine, const std::string& since,
                   const std::string& key) -> Result<> {
        if (!machine.empty()) {
            rows.push_back({account, machine, "-", "-", "-", "-", "-", since, key});
            return Ok{};
        }
        auto limits = opened->store->limits(account);
        if (!limits) return limits.error();
        std::ostringstream weight;
        weight << limits->weight;
        rows.push_back({account, "-", role_name(limits->is_operator),
                        limits->gpus_max ? std::to_string(*limits->gpus_max) : "all",
                        limits->device_memory_max ? exact_bytes(*limits->device_memory_max) : "all", weight.str(),
                        std::to_string(limits->priority), since, key});
        return Ok{};
    };
    for (auto& key : *keys)
        if (auto added = add(key.owner.account, key.owner.machine, date(key.enrolled_ms), key.public_key); !added)
            return added;
    for (auto& token : *tokens)
        if (token.open(now_ms()))
            if (auto added = add(token.account, "", "-", "none yet; its token is good until " + date(token.expires_ms));
                !added)
                return added;
    print_table(out, rows);
    return Ok{};
}

static Result<> remove_machine(Opened& opened, const std::string& name, const std::string& machine) {
    auto keys = opened.store->keys();
    if (!keys) return keys.error();
    if (std::none_of(keys->begin(), keys->end(),
                     [&](auto& key) { return key.owner.account == name && key.owner.machine == machine; }))
        return Error{Error::Kind::not_found, "there is no machine '" + machine + "' of a user '" + name + "'",
                     "tnr-gpu-server user list names them"};
    return opened.store->remove_machine(name, machine);
}

Result<> user_remove(const std::string& name, const std::string& machine, const std::string& state, std::ostream& out) {
    auto opened = open_existing(state);
    if (!opened) return opened.error();
    auto removed = machine.empty() ? opened->store->remove_account(name) : remove_machine(*opened, name, machine);
    if (!removed) return removed;
    auto what = machine.empty() ? name : "machine " + machine + " of " + name;
    note_change(opened->folder, "removed " + (machine.empty() ? "user " + name : what));
    if (machine.empty()) {
        // A server that runs finds them gone when it looks for one, and takes no new ones of an unknown account.
        std::error_code error;
        std::filesystem::remove_all(opened->folder.images() / image_tenant(name, ""), error);
    }
    out << "Removed " << what << "\n";
    return Ok{};
}

// "16G", "16GiB", "512M"; "0" or nothing: no limit.
static Result<std::optional<uint64_t>> parse_device_memory(const std::string& text) {
    if (text.empty() || text == "0") return std::optional<uint64_t>();
    uint64_t number = 0;
    auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string unit(rest, text.data() + text.size());
    const unsigned shift = unit.starts_with('M') ? 20 : unit.starts_with('G') ? 30 : unit.starts_with('T') ? 40 : 0;
    const bool is_unit = shift > 0 && (unit.size() == 1 || unit.substr(1) == "B" || unit.substr(1) == "iB");
    if (failed != std::errc{} || !is_unit || number > device_memory_limit_most >> shift ||
        number << shift < device_memory_limit_least)
        return Error{Error::Kind::usage, "'" + text + "' is no limit of a GPU's memory",
                     "it looks like 512M, 16G or 1T, from " + exact_bytes(device_memory_limit_least) + " to " +
                         exact_bytes(device_memory_limit_most) + "; 0: all that there is"};
    return std::optional(number << shift);
}

Result<> user_limit(const UserLimitOptions& options, std::ostream& out) {
    if (options.weight && std::isnan(*options.weight))  // which is in every range
        return Error{Error::Kind::usage, "'nan' is no weight", "--weight takes a number from 0.01 to 100"};
    auto device_memory = parse_device_memory(options.device_memory);
    if (!device_memory) return device_memory.error();
    auto opened = open_existing(options.state);
    if (!opened) return opened.error();
    auto limits = opened->store->limits(options.name);
    if (!limits) return limits.error();
    const auto before = *limits;
    if (options.gpus) limits->gpus_max = *options.gpus > 0 ? options.gpus : std::nullopt;
    if (!options.device_memory.empty()) limits->device_memory_max = *device_memory;
    if (options.weight) limits->weight = *options.weight;
    if (options.priority) limits->priority = *options.priority;
    if (!options.role.empty()) limits->is_operator = options.role == "operator";
    if (auto set = opened->store->set_limits(options.name, *limits); !set) return set;
    std::ostringstream text;
    text << options.name << ", " << (limits->is_operator ? "an operator" : "a user") << ", may use "
         << (limits->gpus_max ? "at most " : "") << limits->gpus_in_words()
         << (limits->device_memory_max ? ", " + exact_bytes(*limits->device_memory_max) + " of each" : "")
         << "; its weight in the queue is " << limits->weight << ", its priority " << limits->priority;
    if (*limits != before) note_change(opened->folder, "set limits: " + text.str());
    out << text.str() << "\n";
    return Ok{};
}

Result<> rotate_key(const RotateOptions& options, std::ostream& out) {
    auto overlap = options.overlap.empty() ? key_overlap : parse_duration(options.overlap, key_overlap_max);
    if (!overlap) return overlap.error();
    if (options.drop_old && !options.overlap.empty())
        return Error{Error::Kind::usage, "--drop-old makes no new key, so nothing overlaps"};
    auto folder = StateFolder::find(options.state);
    if (!folder) return folder.error();
    if (folder->last_was_plain())
        return Error{Error::Kind::usage, "this server runs with --plain, without keys: there is none to renew",
                     "first start it without --plain, so that clients sign in"};
    // There is one, before it is locked.
    if (auto keys = folder->server_keys(); !keys) return keys.error();
    auto alone = folder->lock_keys();
    if (!alone) return alone.error();
    if (options.drop_old) {
        if (auto dropped = folder->drop_old_server_key(); !dropped) return dropped;
        note_change(*folder, "dropped the server's old key");
        out << "The server's old key is worthless now\n";
        return Ok{};
    }
    auto old = folder->old_server_key();
    if (!old) return old.error();
    if (*old && (*old)->until_ms > now_ms())
        return Error{Error::Kind::usage,
                     "the last rotation's old key is good until " + date((*old)->until_ms) +
                         "; clients that have not come since would be locked out",
                     "wait, or give them up: tnr-gpu-server rotate-key --drop-old"};
    const int64_t until = now_ms() + overlap->count() * 1000;
    if (auto rotated = folder->rotate_server_key(until); !rotated) return rotated;
    auto fresh = folder->server_keys();
    if (!fresh) return fresh.error();
    note_change(*folder, "made a new key for the server; the old one is good until " + date(until));
    out << "The server's key is " << fresh->public_key << " now\n";
    if (overlap->count() > 0)
        out << "The old one is good until " << date(until) << " UTC; clients that come until then learn the new one\n";
    else
        out << "The old one is worthless: every user has to sign in again, with a new line of `tnr-gpu-server user "
               "add`\n";
    return Ok{};
}

Result<> print_audit(const std::string& since, const std::string& state, std::ostream& out) {
    auto folder = StateFolder::find(state);
    if (!folder) return folder.error();
    int64_t since_ms = 0;
    if (!since.empty()) {
        auto ago = parse_duration(since, std::chrono::hours(24 * 3650));
        if (!ago) return ago.error();
        since_ms = now_ms() - ago->count() * 1000;
    }
    return read_audit(folder->path(), since_ms, [&](const AuditEntry& entry) {
        out << date(entry.at_ms) << ":" << std::setw(2) << std::setfill('0') << entry.at_ms / 1000 % 60 << "  "
            << (entry.kind == AuditEntry::Kind::changed ? "changed  " : "refused  ") << printable(entry.who) << " ("
            << printable(entry.from) << "): " << printable(entry.what);
        if (entry.times > 1) out << " … and " << entry.times - 1 << " more";
        out << "\n";
    });
}

}  // namespace tnr::server
