// See pool_state.hpp.
#include "gpu_server/watch/pool_state.hpp"

#include <nlohmann/json.hpp>

namespace tnr::watch {

using nlohmann::json;

static json node_json(const NodeState& node) {
    json limits = json::array();
    for (auto& one : node.limits)
        limits.push_back({{"what", one.what}, {"of", one.of}, {"most", one.most}, {"beyond", one.beyond}});
    auto& reloads = node.reloads;
    return {{"name", node.name},
            {"version", node.version},
            {"address", node.address},
            {"since", node.since_ms},
            {"ending", node.ending},
            {"draining", node.draining},
            {"limits", limits},
            {"reloads", {{"done", reloads.done}, {"failed", reloads.failed}, {"why_failed", reloads.why_failed}}}};
}

static json other_json(const OtherNode& node) {
    return {{"name", node.name},
            {"version", node.version},
            {"address", node.address},
            {"draining", node.draining},
            {"types", node.types}};
}

static json gpu_json(const GpuState& gpu) {
    return {{"node", gpu.node},
            {"index", gpu.index},
            {"type", gpu.type},
            {"name", gpu.name},
            {"uuid", gpu.uuid},
            {"state", gpu.state},
            {"memory_bytes", gpu.memory_bytes},
            {"granted_bytes", gpu.granted_bytes},
            {"claim", gpu.claim ? json(gpu.claim) : json()}};
}

static json claim_json(const ClaimState& claim) {
    json sessions = json::array();
    for (auto& session : claim.sessions)
        sessions.push_back({{"pid", session.pid}, {"process", session.process}, {"connected", session.connected}});
    return {{"id", claim.id},
            {"node", claim.node},
            {"user", claim.user},
            {"machine", claim.machine},
            {"gpu", claim.gpu},
            {"gpus", claim.gpus},
            {"since", claim.since_ms},
            {"lasted_ms", claim.lasted_ms},
            {"busy_ms", claim.busy_ms},
            {"bytes_up", claim.bytes_up},
            {"bytes_down", claim.bytes_down},
            {"ending", claim.ending},
            {"sessions", sessions}};
}

static json waiting_json(const WaitingState& waiting) {
    return {{"user", waiting.user},          {"machine", waiting.machine}, {"gpu", waiting.gpu},
            {"count", waiting.count},        {"place", waiting.place},     {"of", waiting.of},
            {"waited_ms", waiting.waited_ms}};
}

// The mean, and below which nine of ten are, as far as the steps tell.
static json histogram_json(const Histogram& histogram) {
    const uint64_t all = histogram.count();
    json nine_of_ten;
    uint64_t below = 0;
    for (size_t step = 0; step < Histogram::bounds.size() && nine_of_ten.is_null() && all > 0; ++step) {
        below += histogram.counts[step];
        if (below * 10 >= all * 9) nine_of_ten = Histogram::bounds[step];
    }
    return {{"count", all},
            {"mean_s", all ? json(histogram.sum / static_cast<double>(all)) : json()},
            {"p90_at_most_s", nine_of_ten}};
}

static json totals_json(const Totals& totals) {
    return {{"requests", totals.requests},
            {"refusals", totals.refusals},
            {"claims", totals.claims},
            {"sessions", totals.sessions},
            {"wipes", totals.wipes},
            {"wipes_failed", totals.wipes_failed},
            {"wiped_bytes", totals.wiped_bytes},
            {"wipe_checked_bytes", totals.wipe_checked_bytes},
            {"bytes_up", totals.bytes_up},
            {"bytes_down", totals.bytes_down},
            {"held_s", totals.held_s},
            {"busy_s", totals.busy_s},
            {"claim_s", histogram_json(totals.claim_s)},
            {"queue_s", histogram_json(totals.queue_s)},
            {"wipe_s", histogram_json(totals.wipe_s)}};
}

static json frame(const PoolState& state) {
    json nodes = json::array(), others = json::array(), gpus = json::array();
    for (auto& node : state.nodes) nodes.push_back(node_json(node));
    for (auto& node : state.other_nodes) others.push_back(other_json(node));
    for (auto& gpu : state.gpus) gpus.push_back(gpu_json(gpu));
    return {{"now", state.now_ms},     {"name", state.name},     {"open", state.open},
            {"nodes", nodes},          {"other_nodes", others},  {"gpus", gpus},
            {"claims", json::array()}, {"queue", json::array()}, {"queue_length", state.queue.size()}};
}

json to_json(const PoolState& state) {
    json whole = frame(state);
    for (auto& claim : state.claims) whole["claims"].push_back(claim_json(claim));
    for (auto& waiting : state.queue) whole["queue"].push_back(waiting_json(waiting));
    whole["totals"] = totals_json(state.totals);
    return whole;
}

json to_json_for(const PoolState& state, const std::string& account) {
    json part = frame(state);
    std::map<int64_t, bool> mine;
    for (auto& claim : state.claims)
        if ((mine[claim.id] = claim.account == account)) part["claims"].push_back(claim_json(claim));
    for (auto& waiting : state.queue)
        if (waiting.account == account) part["queue"].push_back(waiting_json(waiting));
    for (auto& gpu : part["gpus"]) {
        if (gpu["claim"].is_null() || mine[gpu["claim"]]) continue;
        gpu["claim"] = nullptr;
        gpu.erase("granted_bytes");
    }
    return part;
}

}  // namespace tnr::watch
