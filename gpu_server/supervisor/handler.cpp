// See handler.hpp. The table of operations is in gpu_client/protocol/control.hpp.
#include "gpu_server/supervisor/handler.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

// A peer that names no machine of its own: the account's laptop, or a program on this host.
static constexpr const char* unnamed_machine = "local";

void Handler::handle(const Peer& peer, const void* data, size_t size, std::function<void(std::string)> answer) {
    uint64_t id = 0;
    auto request = parse_request(data, size, id);
    auto reply = [id, answer = std::move(answer)](Result<json> result) {
        answer(result ? answer_text(id, std::move(*result)) : error_text(id, result.error()));
    };
    if (!request) return reply(request.error());
    // Asked for each request, so that a key that was forgotten a moment ago is worth nothing now.
    auto caller = identify(peer, *request);
    if (!caller) return reply(caller.error());
    dispatch(peer, *caller, *request, reply);
}

Result<Caller> Handler::identify(const Peer& peer, const Request& request) {
    std::string machine = request.machine.empty() ? unnamed_machine : request.machine;
    if (peer.public_key.empty()) return Caller{Caller::Role::open, "", machine, ""};
    auto owner = store_.find_key(peer.public_key);
    if (!owner) return owner.error();
    if (!*owner) return Error{Error::Kind::auth, "this key is not enrolled any more", "enroll it again"};
    if ((*owner)->role == Owner::Role::machine)
        return Caller{Caller::Role::machine, (*owner)->account, (*owner)->machine, peer.public_key};
    return Caller{Caller::Role::account, (*owner)->account, machine, peer.public_key};
}

static const char* role_name(Caller::Role role) {
    return role == Caller::Role::account ? "account" : role == Caller::Role::machine ? "machine" : "open";
}

void Handler::dispatch(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply) {
    bool for_accounts = request.op == Op::enroll_machine || request.op == Op::forget_machine ||
                        request.op == Op::claims || request.op == Op::ledger;
    if (for_accounts && caller.role == Caller::Role::machine)
        return reply(Error{Error::Kind::auth, "a machine's key may not do this", "use the account's own login"});
    GpuWish wish{request.gpu, request.count, std::chrono::seconds(request.wait_s), request.place};
    switch (request.op) {
        case Op::hello:
            return reply(json{{"protocol", wire::protocol_version},
                              {"table", control::table_hash()},
                              {"version", control::version()},
                              {"role", role_name(caller.role)}});
        case Op::types:
            return reply(types());
        case Op::describe:
            return claims_.describe(caller, wish, reply);
        case Op::session:
            return claims_.open_session(caller, wish, {request.pid, request.process, request.nonce, peer.connection},
                                        reply);
        case Op::nvml:
            return nvml(caller, request, reply, EventLoop::Clock::now() + nvml_patience);
        case Op::enroll_machine:
            return reply(enroll(caller, request));
        case Op::forget_machine:
            return reply(forget(caller, request));
        case Op::claims:
            return reply(claims_of(caller));
        case Op::ledger:
            return reply(ledger_of(caller, request));
        case Op::prices:
            return reply(prices(request));
        case Op::release:
            claims_.release(caller, "released by its machine");
            return reply(json::object());
    }
}

static json per_hour(const GpuPrice& price) {
    if (!price.micros_per_hour) return nullptr;
    return static_cast<double>(*price.micros_per_hour) / 1e6;
}

Result<json> Handler::types() {
    json list = json::array();
    for (auto& type : gpus_.types()) {
        uint64_t memory = 0;
        for (auto& gpu : gpus_.all())
            if (gpu.found.type == type) memory = gpu.found.memory_bytes;
        auto price = ledger_.price_at(type, now_ms());
        if (!price) return price.error();
        list.push_back({{"name", type},
                        {"total", gpus_.count(type)},
                        {"free", gpus_.with_state(type, Gpu::State::free).size() +
                                     gpus_.with_state(type, Gpu::State::kept).size() +
                                     gpus_.with_state(type, Gpu::State::wiping).size()},
                        {"memory_bytes", memory}});
        if (*price) list.back()["price"] = {{"currency", (*price)->currency}, {"per_hour", per_hour(**price)}};
    }
    return json{{"types", list}};
}

json Handler::claims_of(const Caller& caller) {
    json list = json::array();
    for (auto& claim : claims_.all()) {
        if (claim->account != caller.account || claim->ending) continue;
        json devices = json::array();
        for (int index : claim->gpus) devices.push_back(gpus_.at(index).found.uuid);
        list.push_back({{"machine", claim->machine},
                        {"gpu", claim->gpu},
                        {"devices", devices},
                        {"since", claim->began_ms / 1000},
                        {"sessions", claim->sessions.size()}});
    }
    return {{"claims", list}};
}

static json line_of(const ClaimRecord& claim) {
    json line = {{"id", claim.id},
                 {"machine", claim.machine},
                 {"gpu", claim.gpu},
                 {"count", std::count(claim.devices.begin(), claim.devices.end(), ',') + 1},
                 {"node", claim.node},
                 {"from", claim.began_ms},
                 {"to", claim.until_ms()},
                 {"ended", claim.ended},
                 {"reason", claim.reason},
                 {"bytes_up", claim.use.bytes_up},
                 {"bytes_down", claim.use.bytes_down}};
    if (claim.wiped_bytes) line["wiped_bytes"] = *claim.wiped_bytes;
    return line;
}

// Of the asker's own account, whatever the request says.
Result<json> Handler::ledger_of(const Caller& caller, const Request& request) {
    auto claims = ledger_.claims_of(caller.account, {request.since, request.behind}, ledger_lines_per_answer);
    if (!claims) return claims.error();
    json lines = json::array(), next;
    if (std::ssize(*claims) == ledger_lines_per_answer)
        next = {{"since", claims->back().until_ms()}, {"behind", claims->back().id}};
    for (auto& claim : *claims) {
        if (auto now = books_.use_of(claim.id)) claim.use = *now;
        lines.push_back(line_of(claim));
    }
    return json{{"claims", lines}, {"next", next}};
}

Result<json> Handler::prices(const Request& request) {
    auto prices = ledger_.prices(request.behind, prices_per_answer);
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
    std::vector<NvmlDevice> devices;
    for (int index : *gpus) {
        Gpu& gpu = gpus_.at(index);
        NvmlDevice device;
        device.index = index;
        device.type = gpu.found.type;
        device.name = gpu.found.name;
        device.uuid = gpu.found.uuid;
        device.memory_bytes = gpu.found.memory_bytes;
        if (gpu.description) {
            device.pci_domain = gpu.description->pci_domain;
            device.pci_bus = gpu.description->pci_bus;
            device.pci_device = gpu.description->pci_device;
            device.driver_version = gpu.description->driver_version;
            device.attributes = gpu.description->attributes;
        }
        for (auto& claim : claims_.all()) {
            if (!claim->belongs_to(caller)) continue;  // another's processes are nobody else's business
            for (size_t i = 0; i < claim->gpus.size(); ++i)
                for (auto& session : claim->sessions)
                    if (claim->gpus[i] == index)
                        device.processes.push_back(
                            {session.process.pid, session.process.name, session.worker->pid, session.granted_bytes[i]});
        }
        devices.push_back(std::move(device));
    }
    return devices;
}

Result<json> Handler::enroll(const Caller& caller, const Request& request) {
    // An open pool asks nobody for a key. Remembering one would let whoever reaches it over loopback today come in
    // from anywhere once the pool is not open any more.
    if (caller.role == Caller::Role::open) return json::object();
    auto stored = store_.put_machine(caller.account, request.name, request.public_key);
    if (!stored) return stored.error();
    log(LogLevel::info, caller.account + " enrolled machine " + request.name);
    return json::object();
}

Result<json> Handler::forget(const Caller& caller, const Request& request) {
    if (caller.role == Caller::Role::account) {
        auto removed = store_.remove_machine(caller.account, request.name);
        if (!removed) return removed.error();
        log(LogLevel::info, caller.account + " forgot machine " + request.name);
    }
    Caller machine = caller;
    machine.machine = request.name;
    claims_.release(machine, "its machine was forgotten");
    // An account's images serve its other machines, and the next one that it makes.
    if (caller.role == Caller::Role::open) images_.forget(image_tenant("", request.name));
    return json::object();
}

}  // namespace tnr::server
