// See picture.hpp.
#include "gpu_server/supervisor/picture.hpp"

#include <nlohmann/json.hpp>

#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/log.hpp"

namespace tnr::server {

static std::string name_of(Gpu::State state) {
    switch (state) {
        case Gpu::State::wiping:
            return "wiping";
        case Gpu::State::free:
            return "free";
        case Gpu::State::claimed:
            return "claimed";
        case Gpu::State::kept:
            return "kept";
        case Gpu::State::broken:
            return "broken";
    }
    return "unknown";
}

static watch::GpuState state_of(const Gpu& gpu, const std::string& node) {
    watch::GpuState state{node, gpu.index, gpu.found.type, gpu.found.name, gpu.found.uuid, name_of(gpu.state)};
    state.memory_bytes = gpu.found.memory_bytes;
    state.granted_bytes = gpu.memory.size() - gpu.memory.left();
    return state;
}

static watch::ClaimState state_of(const Claim& claim, const ClaimUse& use, const std::string& node) {
    watch::ClaimState state{claim.id, node, claim.user, claim.account, claim.machine, claim.gpu, claim.gpus};
    state.since_ms = claim.began_ms;
    state.lasted_ms = use.lasted_ms;
    state.busy_ms = use.busy_ms;
    state.bytes_up = use.bytes_up;
    state.bytes_down = use.bytes_down;
    state.ending = claim.ending;
    for (auto& session : claim.sessions)
        state.sessions.push_back({session.process.pid, printable(session.process.name), session.connected});
    return state;
}

static watch::Totals totals_of(Painter& from) {
    auto& requests = from.handler.tally();
    auto& claims = from.claims.tally();
    auto& wipes = from.gpus.tally();
    auto use = from.books.tally();
    watch::Totals totals;
    totals.requests = requests.requests;
    totals.refusals = requests.refusals;
    totals.claims = claims.claims;
    totals.sessions = claims.sessions;
    totals.wipes = wipes.done;
    totals.wipes_failed = wipes.failed;
    totals.wiped_bytes = wipes.bytes;
    totals.wipe_checked_bytes = wipes.checked_bytes;
    totals.bytes_up = use.bytes_up;
    totals.bytes_down = use.bytes_down;
    totals.held_s = use.held_s;
    totals.busy_s = use.busy_s;
    totals.claim_s = requests.claim_seconds;
    totals.queue_s = claims.queue_seconds;
    totals.wipe_s = wipes.seconds;
    return totals;
}

static std::vector<watch::OtherNode> others_of(const Membership& members) {
    std::vector<watch::OtherNode> others;
    for (auto& node : members.others()) {
        watch::OtherNode other{node.name, node.version, node.address, node.draining};
        if (node.kinds) other.types.assign(node.kinds->begin(), node.kinds->end());
        others.push_back(std::move(other));
    }
    return others;
}

bool sees_all(const Caller& caller) {
    return caller.role == Caller::Role::open || caller.role == Caller::Role::node || caller.is_operator;
}

watch::PoolState Painter::picture() {
    watch::PoolState state;
    state.now_ms = now_ms();
    state.name = pool;
    state.open = open;
    state.nodes = {node};
    state.nodes[0].draining = members.draining();
    state.other_nodes = others_of(members);
    for (auto& gpu : gpus.all()) state.gpus.push_back(state_of(gpu, node.name));
    for (auto& claim : claims.all()) {
        state.claims.push_back(state_of(*claim, books.use_of(claim->id).value_or(ClaimUse{}), node.name));
        for (int index : claim->gpus) state.gpus[static_cast<size_t>(index)].claim = claim->id;
    }
    for (auto& each : claims.queue())
        state.queue.push_back({each.caller.user(), each.caller.account, each.caller.machine, each.wish.gpu,
                               each.wish.count, each.place, each.of, each.waited.count()});
    state.totals = totals_of(*this);
    return state;
}

nlohmann::json Painter::told_to(const Caller& caller) {
    auto state = picture();
    return sees_all(caller) ? to_json(state) : to_json_for(state, caller.account);
}

}  // namespace tnr::server
