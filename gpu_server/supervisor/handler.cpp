// See handler.hpp. The table of operations is in gpu_client/protocol/control.hpp.
#include "gpu_server/supervisor/handler.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/ledger_sums.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

// A peer that names no machine of its own: the account's laptop, or a program on this host.
static constexpr const char* unnamed_machine = "local";

// Why this caller may not ask this.
static std::optional<Error> forbidden(const Caller& caller, const Request& request) {
    if (caller.role == Caller::Role::token && request.op != Op::hello && request.op != Op::redeem)
        return Error{Error::Kind::auth, "a token may be traded for a key, and nothing else",
                     "sign in with it: tnr login pool"};
    if (caller.role != Caller::Role::token && request.op == Op::redeem)
        return Error{Error::Kind::auth, "this is no token but a key that is enrolled already"};
    if (caller.role == Caller::Role::node && request.op != Op::hello && request.op != Op::pool)
        return Error{Error::Kind::auth, "a node may ask what this one has, and nothing else"};
    bool for_accounts = request.op == Op::enroll_machine || request.op == Op::forget_machine ||
                        request.op == Op::claims || request.op == Op::ledger || request.op == Op::queue ||
                        request.op == Op::pool;
    if (for_accounts && caller.role == Caller::Role::machine)
        return Error{Error::Kind::auth, "a machine's key may not do this", "use the account's own login"};
    // In an open pool, which is this host's own, everybody may see all.
    if (request.everyone && !caller.is_operator && caller.role != Caller::Role::open)
        return Error{Error::Kind::auth, "only an operator may ask for everybody's",
                     "an operator is made on the server: tnr-gpu-server user limit NAME --role operator"};
    return std::nullopt;
}

void Handler::handle(const Peer& peer, const void* data, size_t size, std::function<void(std::string)> answer) {
    uint64_t id = 0;
    auto request = parse_request(data, size, id);
    auto tallied = [this, id, answer = std::move(answer)](Result<json> result) {
        if (!result) ++tally_.refusals[control::to_json(result.error()).value("kind", "")];
        answer(result ? answer_text(id, std::move(*result)) : error_text(id, result.error()));
    };
    if (!request) {
        auto who = peer.public_key.empty() ? "a client" : "key " + peer.public_key;
        audit_.note(source_of(peer.address), {AuditEntry::Kind::refused, who, request.error().what, peer.address});
        return tallied(request.error());
    }
    // Asked for each request, so that a key that was forgotten a moment ago is worth nothing now.
    auto caller = identify(peer, *request);
    auto who = caller ? caller->label() : "key " + peer.public_key;
    Reply noted = [=, this, request = *request](Result<json> result) {
        if (!result) note_refusal(peer, who, request, result.error());
        // A client that still knows the server by its old key learns the new one, over what only the old one can open.
        if (result && !request.pool_key.empty() && request.pool_key != keys_.public_key())
            (*result)["pool_key"] = keys_.public_key();
        tallied(std::move(result));
    };
    auto reply = counted(*request, std::move(noted));
    if (!caller) return reply(caller.error());
    if (peer.crowded)
        return reply(Error{Error::Kind::remote,
                           "too many connections: a key may have " + std::to_string(connections_per_key_max) +
                               " at once, and all of a user's " + std::to_string(connections_per_account_max),
                           "end some of your programs"});
    if (auto why = forbidden(*caller, *request)) return reply(*why);
    look_then_dispatch(peer, *caller, *request, reply);
}

void Handler::note_refusal(const Peer& peer, const std::string& who, const Request& request, const Error& error) {
    auto whose = who.substr(0, who.find('/'));  // all of a user's machines count together
    audit_.note(peer.public_key.empty() ? source_of(peer.address) : whose,
                {AuditEntry::Kind::refused, who, op_name(request.op) + ": " + error.what, peer.address});
}

void Handler::note_change(const Peer& peer, const Caller& caller, const std::string& what) {
    log(LogLevel::info, caller.label() + " " + what);
    audit_.note(caller.user(), {AuditEntry::Kind::changed, caller.label(), what, peer.address});
}

// One that is told its place in the queue has no session yet; it asks again.
Reply Handler::counted(const Request& request, Reply reply) {
    ++tally_.requests[op_name(request.op)];
    if (request.op != Op::session) return reply;
    return [this, began = loop_.now(), reply = std::move(reply)](Result<json> result) {
        if (result && result->contains("session"))
            tally_.claim_seconds.add(std::chrono::duration<double>(loop_.now() - began).count());
        reply(std::move(result));
    };
}

Result<Caller> Handler::identify(const Peer& peer, const Request& request) {
    std::string machine = request.machine.empty() ? unnamed_machine : request.machine;
    if (peer.public_key.empty()) return Caller{Caller::Role::open, "", machine, ""};
    if (auto node = nodes_.find(peer.public_key))  // before accounts, as the doorkeeper does
        return Caller{Caller::Role::node, node_account(*node), *node, peer.public_key};
    auto owner = store_.find_key(peer.public_key);
    if (!owner) return owner.error();
    if (!*owner) return Error{Error::Kind::auth, "this key is not enrolled any more", "enroll it again"};
    if ((*owner)->role == Owner::Role::machine)
        return Caller{Caller::Role::machine, (*owner)->account, (*owner)->machine, peer.public_key};
    if ((*owner)->role == Owner::Role::token)
        return Caller{Caller::Role::token, (*owner)->account, machine, peer.public_key};
    return Caller{Caller::Role::account, (*owner)->account, machine, peer.public_key, (*owner)->is_operator};
}

static const char* role_name(Caller::Role role) {
    switch (role) {
        case Caller::Role::account:
            return "account";
        case Caller::Role::machine:
            return "machine";
        case Caller::Role::token:
            return "token";
        case Caller::Role::node:
            return "node";
        case Caller::Role::open:
            return "open";
    }
    return "";
}

static GpuWish wish_of(const Request& request) {
    return {request.gpu, request.count, std::chrono::seconds(request.wait_s), request.place, request.hops};
}

// What the answer depends on at other nodes.
Question Handler::about_others(const Caller& caller, const Request& request) {
    switch (request.op) {
        case Op::describe:
        case Op::session:
        case Op::nvml:
            return claims_.about_others(caller, wish_of(request), request.op == Op::session);
        case Op::types:
            return {.all_free = true};
        case Op::nodes:
            return {.all_claims = true, .all_free = true};
        case Op::claims:
            if (request.everyone) return {.all_claims = true};
            [[fallthrough]];
        case Op::release:
            return {.accounts = {caller.account}};
        default:
            return {};
    }
}

void Handler::look_then_dispatch(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply) {
    const auto owner = caller.owner();
    const auto question = about_others(caller, request);
    auto looking = looking_.find(owner);
    if (question == Question{} || (looking != looking_.end() && looking->second >= looks_per_owner_max))
        return dispatch(peer, caller, request, reply);
    ++looking_[owner];
    pool_.look(question, [=, this] {
        if (--looking_[owner] == 0) looking_.erase(owner);
        // Its key may have been forgotten meanwhile, and what it had have ended.
        auto still = identify(peer, request);
        if (!still) return reply(still.error());
        dispatch(peer, *still, request, reply);
    });
}

void Handler::dispatch(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply) {
    const auto wish = wish_of(request);
    switch (request.op) {
        case Op::hello:
            return reply(hello(caller));
        case Op::types:
            return reply(types(caller));
        case Op::describe:
            return claims_.describe(caller, wish, reply);
        case Op::session:
            return claims_.open_session(
                caller, wish, {request.pid, request.process, request.nonce, peer.connection, request.doors}, reply);
        case Op::nvml:
            return claims_.once_in_touch(caller, wish, reply, [=, this](const Reply& now) {
                if (auto node = claims_.elsewhere(caller, wish)) return now(std::move(*node));
                nvml(caller, request, now, EventLoop::Clock::now() + nvml_patience);
            });
        case Op::enroll_machine:
            return enroll(peer, caller, request, reply);
        case Op::forget_machine:
            return forget(peer, caller, request, reply);
        case Op::redeem:
            return redeem(peer, caller, request, reply);
        case Op::claims:
            return reply(claims_of(caller, request));
        case Op::queue:
            return reply(queue_of(caller, request));
        case Op::ledger:
            return reply(ledger_of(caller, request));
        case Op::prices:
            return reply(prices(request));
        case Op::pool:
            return reply(pool_told_(caller, request.day));
        case Op::release:
            return reply(release(caller, request));
        case Op::nodes:
            return reply(nodes());
    }
}

// The pool's identity is random, and opens nothing; a node that has not found its pool yet has none to tell.
json Handler::hello(const Caller& caller) const {
    json told = {{"protocol", wire::protocol_version}, {"table", control::table_hash()},
                 {"version", control::version()},      {"role", role_name(caller.role)},
                 {"operator", caller.is_operator},     {"time", now_ms() / 1000}};
    if (auto& pool = pool_.directory().standing().pool; !pool.empty()) told["pool"] = pool;
    return told;
}

// Here; then the client asks the other node that has a claim of it, if there is one.
json Handler::release(const Caller& caller, const Request& request) {
    claims_.release(caller, "released by its machine");
    if (request.hops >= 0 && request.hops < hops_max)
        if (auto node = pool_.node_with_claim_of(caller)) return *node;
    return json::object();
}

json Handler::nodes() {
    json list = json::array();
    std::map<std::string, int> claims;
    for (auto& [name, claim] : pool_.directory().claims()) ++claims[claim.node];
    for (auto& [name, node] : pool_.directory().nodes()) {
        json types = json::object();
        for (auto& [type, count] : node.types) types[type] = {{"total", count.total}, {"free", count.free}};
        list.push_back({{"name", name},
                        {"address", node.address},
                        {"server_key", node.server_key},
                        {"version", node.version},
                        {"state", node.draining ? "draining" : "ready"},
                        {"gpus", types},
                        {"claims", claims[name]}});
    }
    return {{"nodes", list}, {"asked", pool_.name()}, {"gone", pool_.gone()}};
}

static json per_hour(const GpuPrice& price) {
    if (!price.micros_per_hour) return nullptr;
    return static_cast<double>(*price.micros_per_hour) / 1e6;
}

Result<json> Handler::types(const Caller& caller) {
    json list = json::array();
    auto types = pool_.types_elsewhere();
    for (auto& type : gpus_.types()) {
        auto& count = types[type];
        for (auto& gpu : gpus_.all())
            if (gpu.found.type == type) count.memory_bytes = gpu.found.memory_bytes;
        count.total += gpus_.count(type);
        if (pool_.draining()) continue;
        for (auto state : {Gpu::State::free, Gpu::State::kept, Gpu::State::wiping})
            count.free += static_cast<int>(gpus_.with_state(type, state).size());
    }
    auto elsewhere = pool_.offered_elsewhere();
    for (auto& [type, count] : types) {
        auto price = store_.price_at(type, now_ms());
        if (!price) return price.error();
        list.push_back({{"name", type},
                        {"total", count.total},
                        {"free", count.free},
                        {"together", std::max(gpus_.count(type), elsewhere[type].most)},
                        {"memory_bytes", std::min(count.memory_bytes, claims_.device_memory_max(caller, type))}});
        if (*price) list.back()["price"] = {{"currency", (*price)->currency}, {"per_hour", per_hour(**price)}};
    }
    return json{{"types", list}};
}

json Handler::claims_of(const Caller& caller, const Request& request) {
    json list = json::array();
    for (auto& claim : claims_.all()) {
        if ((claim->account != caller.account && !request.everyone) || claim->ending) continue;
        json devices = json::array();
        for (int index : claim->gpus) devices.push_back(gpus_.at(index).found.uuid);
        list.push_back({{"machine", claim->machine},
                        {"gpu", claim->gpu},
                        {"devices", devices},
                        {"since", claim->began_ms / 1000},
                        {"sessions", claim->sessions.size()},
                        {"node", pool_.name()}});
        if (request.everyone) list.back()["account"] = claim->account;
    }
    for (auto& claim : pool_.claims_elsewhere(request.everyone ? std::nullopt : std::optional(caller.account))) {
        list.push_back({{"machine", claim.machine},
                        {"gpu", claim.gpu},
                        {"devices", claim.devices},
                        {"since", claim.began_ms / 1000},
                        {"sessions", 1},
                        {"node", claim.node}});
        if (request.everyone) list.back()["account"] = claim.account;
    }
    return {{"claims", list}};
}

static json line_of(const ClaimRecord& claim) {
    json line = {{"id", claim.id},
                 {"machine", claim.machine},
                 {"gpu", claim.gpu},
                 {"count", gpus_of(claim)},
                 {"node", claim.node},
                 {"from", claim.began_ms},
                 {"to", claim.until_ms()},
                 {"ended", claim.ended},
                 {"reason", claim.reason},
                 {"bytes_up", claim.use.bytes_up},
                 {"bytes_down", claim.use.bytes_down},
                 {"busy_ms", claim.use.busy_ms}};
    if (claim.wipe) {
        line["wiped_bytes"] = claim.wipe->bytes;
        line["wipe_checked_bytes"] = claim.wipe->checked_bytes;
        line["wipe_ms"] = claim.wipe->took_ms;
    }
    return line;
}

// Of the asker's own account, unless it is an operator's and asks for everybody's.
json Handler::queue_of(const Caller& caller, const Request& request) {
    json list = json::array();
    for (auto& one : claims_.queue()) {
        if (!request.everyone && one.caller.account != caller.account) continue;
        list.push_back({{"machine", one.caller.machine},
                        {"gpu", one.wish.gpu},
                        {"count", one.wish.count},
                        {"place", one.place},
                        {"of", one.of},
                        {"priority", one.priority},
                        {"waited_s", std::chrono::duration_cast<std::chrono::seconds>(one.waited).count()}});
        if (request.everyone) list.back()["account"] = one.caller.account;
    }
    return {{"queue", list}};
}

Result<json> Handler::ledger_of(const Caller& caller, const Request& request) {
    const int most = request.sums ? ledger_lines_per_sum : ledger_lines_per_answer;
    auto claims = ledger_.claims_of(request.everyone ? std::nullopt : std::optional(caller.account),
                                    {request.since, request.behind}, most);
    if (!claims) return claims.error();
    json lines = json::array(), next;
    if (std::ssize(*claims) == most) next = {{"since", claims->back().until_ms()}, {"behind", claims->back().id}};
    for (auto& claim : *claims)
        if (auto now = books_.use_of(claim.id)) claim.use = *now;
    auto add_line = [&](const ClaimRecord& claim) -> json& {
        lines.push_back(line_of(claim));
        if (request.everyone) lines.back()["account"] = claim.account;
        return lines.back();
    };
    if (!request.sums) {
        for (const auto& claim : *claims) add_line(claim);
        return json{{"claims", lines}, {"next", next}};
    }
    auto prices = store_.prices(0, std::numeric_limits<int>::max());
    if (!prices) return prices.error();
    work_ = claims->size() * summed_line_costs_bytes;
    LedgerSums sums(request.borders, *prices);
    for (auto& claim : *claims) sums.add(std::move(claim));
    for (const auto& sum : sums.sums()) add_line(sum.all).update({{"lines", sum.lines}, {"held_ms", sum.held_ms}});
    return json{{"claims", lines}, {"next", next}};
}

Result<json> Handler::prices(const Request& request) {
    auto prices = store_.prices(request.behind, prices_per_answer);
    if (!prices) return prices.error();
    json list = json::array(), next;
    for (auto& price : *prices)
        list.push_back({{"gpu", price.gpu},
                        {"since", price.since_ms},
                        {"currency", price.currency},
                        {"per_hour", per_hour(price)}});
    if (std::ssize(*prices) == prices_per_answer) next = {{"behind", prices->back().id}};
    return json{{"prices", list}, {"next", next}};
}

// The hardware is asked only while somebody is interested, so the first to ask waits for it.
void Handler::nvml(const Caller& caller, const Request& request, const Reply& reply,
                   EventLoop::Clock::time_point deadline) {
    auto devices = nvml_devices(caller, request);
    if (!devices) return reply(devices.error());
    auto waiting = nvml_waiting_.find(caller.owner());
    bool many = waiting != nvml_waiting_.end() && waiting->second >= waiting_requests_per_owner_max;
    bool late = EventLoop::Clock::now() >= deadline || many;
    if (nvml_.ready(*devices) || late) return reply(nvml_.snapshot(*devices));
    ++nvml_waiting_[caller.owner()];
    loop_.after(nvml_retry, [=, this] {
        if (--nvml_waiting_[caller.owner()] == 0) nvml_waiting_.erase(caller.owner());
        nvml(caller, request, reply, deadline);
    });
}

Result<std::vector<NvmlDevice>> Handler::nvml_devices(const Caller& caller, const Request& request) {
    auto gpus = claims_.would_get(caller, {request.gpu, request.count});
    if (!gpus) return gpus.error();
    const auto memory_max = claims_.device_memory_max(caller, request.gpu);
    std::vector<NvmlDevice> devices;
    for (int index : *gpus) {
        Gpu& gpu = gpus_.at(index);
        NvmlDevice device;
        device.index = index;
        device.type = gpu.found.type;
        device.name = gpu.found.name;
        device.uuid = gpu.found.uuid;
        device.memory_bytes = std::min(gpu.found.memory_bytes, memory_max);
        if (gpu.description) {
            device.pci_domain = gpu.description->pci_domain;
            device.pci_bus = gpu.description->pci_bus;
            device.pci_device = gpu.description->pci_device;
            device.driver_version = gpu.description->driver_version;
            device.attributes = gpu.description->attributes;
        }
        for (auto& claim : claims_.all()) {
            if (!claim->belongs_to(caller)) continue;  // another's processes are nobody else's business
            const auto found = std::find(claim->gpus.begin(), claim->gpus.end(), index);
            if (found == claim->gpus.end()) continue;
            const auto place = static_cast<size_t>(found - claim->gpus.begin());
            for (auto& session : claim->sessions) {
                device.processes.push_back(
                    {session.process.pid, session.process.name, session.worker->pid, session.granted_bytes[place]});
                const bool lately = loop_.now() - session.told_at < busy_lasts;
                if (lately) device.busy_share = std::min(device.busy_share + session.busy_share, 1.0);
            }
        }
        devices.push_back(std::move(device));
    }
    return devices;
}

void Handler::enroll(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply) {
    // An open pool asks nobody for a key. Remembering one would let whoever reaches it over loopback today come in
    // from anywhere once the pool is not open any more.
    if (caller.role == Caller::Role::open) return reply(json::object());
    errands_.run(
        caller.user(), [=, this] { return store_.put_machine(caller.account, request.name, request.public_key); },
        [=, this](Result<> stored) {
            if (!stored) return reply(stored.error());
            note_change(peer, caller, "enrolled machine " + request.name);
            reply(json::object());
        });
}

// The key that it is traded for is in nobody's hands but the client's.
void Handler::redeem(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply) {
    errands_.run(
        caller.user(), [=, this] { return store_.redeem_token(peer.public_key, request.public_key, now_ms()); },
        [=, this](Result<> done) {
            if (!done) return reply(done.error());
            note_change(peer, caller, "signed in with a token: it has the key " + request.public_key + " now");
            reply(json{{"account", caller.account}});
        });
}

void Handler::forget(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply) {
    if (caller.role != Caller::Role::account) {
        forgotten(caller, request.name);
        return reply(json::object());
    }
    errands_.run(
        caller.user(), [=, this] { return store_.remove_machine(caller.account, request.name); },
        [=, this](Result<> removed) {
            if (!removed) return reply(removed.error());
            note_change(peer, caller, "forgot machine " + request.name);
            forgotten(caller, request.name);
            reply(json::object());
        });
}

// Other nodes find its key gone when they look for it, and end what it runs there.
void Handler::forgotten(const Caller& caller, const std::string& name) {
    Caller machine = caller;
    machine.machine = name;
    claims_.release(machine, "its machine was forgotten");
    // An account's images serve its other machines, and the next one that it makes.
    if (caller.role == Caller::Role::open) images_.forget(image_tenant("", name));
}

}  // namespace tnr::server
