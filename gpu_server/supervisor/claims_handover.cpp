// Claims, their sessions and who waits, from one server to the next (handover.hpp). See claims.hpp.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

namespace {

json written(const Caller& caller) {
    return {{"role", static_cast<int>(caller.role)},
            {"account", caller.account},
            {"machine", caller.machine},
            {"public_key", caller.public_key},
            {"operator", caller.is_operator}};
}

Caller caller_from(const json& told) {
    return {static_cast<Caller::Role>(told.at("role").get<int>()), told.at("account").get<std::string>(),
            told.at("machine").get<std::string>(), told.at("public_key").get<std::string>(),
            told.at("operator").get<bool>()};
}

json written(const GpuWish& wish) {
    return {{"gpu", wish.gpu},
            {"count", wish.count},
            {"wait_s", wish.wait.count()},
            {"place", wish.place},
            {"hops", wish.hops}};
}

GpuWish wish_from(const json& told) {
    return {told.at("gpu").get<std::string>(), told.at("count").get<int>(),
            std::chrono::seconds(told.at("wait_s").get<int64_t>()), told.at("place").get<int>(),
            told.at("hops").get<int>()};
}

// Without the connection over which it asked, which has ended.
json written(const Process& process) {
    return {{"pid", process.pid}, {"name", process.name}, {"nonce", process.nonce}, {"doors", process.doors}};
}

Process process_from(const json& told) {
    return {told.at("pid").get<int>(),
            told.at("name").get<std::string>(),
            told.at("nonce").get<std::string>(),
            {},
            told.at("doors").get<bool>()};
}

json written(const MemoryWish& wish) {
    return {{"device", wish.device}, {"bytes", wish.bytes}, {"ticket", wish.ticket}, {"exactly", wish.exactly}};
}

MemoryWish memory_wish_from(const json& told) {
    return {told.at("device").get<size_t>(), told.at("bytes").get<uint64_t>(), told.at("ticket").get<uint64_t>(),
            told.at("exactly").get<bool>()};
}

json written(const Session& session) {
    json held = json::array();
    for (auto& wish : session.held) held.push_back(written(wish.wish));
    return {{"id", session.id},
            {"process", written(session.process)},
            {"worker", session.worker->pid},
            {"granted", session.granted_bytes},
            {"since", ticks(session.since)},
            {"caller", written(session.caller)},
            {"wish", written(session.wish)},
            {"answer", *session.answer},
            {"connected", session.connected},
            {"away", session.away},
            {"bytes_up", session.use.bytes_up},
            {"bytes_down", session.use.bytes_down},
            {"busy_ms", session.use.busy_ms},
            {"busy_share", session.busy_share},
            {"told_at", ticks(session.told_at)},
            {"held", held}};
}

Result<Session> session_from(const json& told, const FindWorker& find_worker, size_t gpus) {
    Session session;
    session.state = Session::State::serving;
    told.at("id").get_to(session.id);
    session.process = process_from(told.at("process"));
    session.worker = find_worker(told.at("worker").get<pid_t>());
    told.at("granted").get_to(session.granted_bytes);
    session.since = time_of(told.at("since"));
    session.caller = caller_from(told.at("caller"));
    session.wish = wish_from(told.at("wish"));
    session.answer = std::make_shared<json>(told.at("answer"));
    told.at("connected").get_to(session.connected);
    told.at("away").get_to(session.away);
    session.use = {told.at("bytes_up").get<int64_t>(), told.at("bytes_down").get<int64_t>(),
                   told.at("busy_ms").get<int64_t>()};
    told.at("busy_share").get_to(session.busy_share);
    session.told_at = time_of(told.at("told_at"));
    session.asked_back.resize(gpus);
    session.asked_before_reload = true;
    if (!session.worker || session.worker->gpus.size() != gpus || session.granted_bytes.size() != gpus)
        return badly_handed_over("a session is not whole");
    return session;
}

json written(const Claim& claim) {
    json sessions = json::array();
    for (auto& session : claim.sessions) sessions.push_back(written(session));
    return {{"id", claim.id},
            {"account", claim.account},
            {"machine", claim.machine},
            {"gpu", claim.gpu},
            {"user", claim.user},
            {"owner", claim.owner},
            {"public_key", claim.public_key},
            {"gpus", claim.gpus},
            {"device_memory_max", claim.device_memory_max},
            {"began_ms", claim.began_ms},
            {"fence", claim.fence},
            {"keep", claim.keep},
            {"sessions", sessions}};
}

Result<std::unique_ptr<Claim>> claim_from(const json& told, const FindWorker& find_worker) {
    auto claim = std::make_unique<Claim>();
    told.at("id").get_to(claim->id);
    told.at("account").get_to(claim->account);
    told.at("machine").get_to(claim->machine);
    told.at("gpu").get_to(claim->gpu);
    told.at("user").get_to(claim->user);
    told.at("owner").get_to(claim->owner);
    told.at("public_key").get_to(claim->public_key);
    told.at("gpus").get_to(claim->gpus);
    claim->device_memory_max = told.value("device_memory_max", UINT64_MAX);
    told.at("began_ms").get_to(claim->began_ms);
    told.at("fence").get_to(claim->fence);
    told.at("keep").get_to(claim->keep);
    for (auto& each : told.at("sessions")) {
        auto session = session_from(each, find_worker, claim->gpus.size());
        if (!session) return session.error();
        claim->sessions.push_back(std::move(*session));
    }
    if (claim->sessions.empty() || claim->gpus.empty()) return badly_handed_over("a claim has nothing");
    return claim;
}

}  // namespace

void Claims::go_on() {
    paused_ = false;
    try_waiting();
}

static bool moves(const Session& session) {
    return session.state != Session::State::serving || session.worker->state != Worker::State::serving;
}

std::string Claims::what_moves() const {
    for (auto& claim : claims_)
        if (claim->fence == 0 || claim->ending || !claim->leftovers.empty() ||
            std::any_of(claim->sessions.begin(), claim->sessions.end(), moves))
            return "claim " + std::to_string(claim->id) + " of " + claim->machine + " begins or ends";
    return {};
}

void Claims::hand_over(Handover& handover) const {
    auto& section = handover.section("claims") = {{"claims", json::array()}, {"queue", json::array()}};
    for (auto& claim : claims_) section["claims"].push_back(written(*claim));
    for (auto& one : waiting_) {
        if (one.over || !one.queued) continue;  // other requests come again
        const auto silent_since = one.gone_since ? *one.gone_since : one.reply ? loop_.now() : one.since;
        section["queue"].push_back(
            {{"caller", written(one.caller)},
             {"wish", written(*one.wish)},
             {"process", written(one.process)},
             {"entered", ticks(one.entered)},
             {"silent_ms", std::chrono::ceil<milliseconds>(loop_.now() - silent_since).count()}});
    }
    section["shares"] = shares_.handed_over();
    section["last_claims"] = last_claims_;
}

// GPUs that are claimed are those of claims, each of one.
Result<> Claims::check_gpus() {
    std::set<int> held;
    for (auto& claim : claims_)
        for (int index : claim->gpus) {
            const bool there = index >= 0 && static_cast<size_t>(index) < gpus_.all().size();
            if (!there || gpus_.at(index).state != Gpu::State::claimed || !held.insert(index).second)
                return badly_handed_over("a claim has GPUs that are not its own");
        }
    for (auto& gpu : gpus_.all())
        if (gpu.state == Gpu::State::claimed && held.count(gpu.index) == 0)
            return badly_handed_over("a GPU is claimed by nobody");
    return Ok{};
}

// Its worker may be dead by now: then that is noticed as of any other.
void Claims::resume(Claim& claim) {
    for (int index : claim.gpus) gpus_.at(index).memory.limit_claim(claim.device_memory_max);
    for (auto& session : claim.sessions) {
        for (size_t i = 0; i < claim.gpus.size(); ++i) gpus_.at(claim.gpus[i]).memory.grant(session.granted_bytes[i]);
        session.timer = loop_.after(asker_looked_at_every, [this, &claim, &session] { look_at_asker(claim, session); });
    }
}

Result<> Claims::take_over(const Handover& handover, const FindWorker& find_worker) {
    paused_ = true;
    return reading("claims", [&]() -> Result<> {
        auto& section = handover.at("claims");
        for (auto& told : section.at("claims")) {
            auto claim = claim_from(told, find_worker);
            if (!claim) return claim.error();
            claims_.push_back(std::move(*claim));
        }
        if (auto sound = check_gpus(); !sound) return sound;
        for (auto& claim : claims_) resume(*claim);
        section.at("last_claims").get_to(last_claims_);
        shares_.take_over(section.at("shares"));
        take_over_queue(section.at("queue"));
        for (auto& claim : section.at("claims"))
            for (auto& session : claim.at("sessions"))
                for (auto& held : session.at("held")) {  // it waits anew
                    auto* worker = find_worker(session.at("worker").get<pid_t>());
                    auto wish = memory_wish_from(held);
                    if (wish.device < worker->gpus.size()) memory_wanted(*worker, wish);
                }
        return Ok{};
    });
}

// Their places are kept until they have asked again: somewhat longer than else, of which what had passed already is gone. The
// time in which no server could be asked does not count.
void Claims::take_over_queue(const json& queue) {
    for (auto& told : queue) {
        enter_queue(
            caller_from(told.at("caller")), wish_from(told.at("wish")), process_from(told.at("process")),
            [](const Result<json>&) {}, time_of(told.at("entered")));
        auto entered = std::find_if(waiting_.begin(), waiting_.end(), [](auto& one) { return one.reply != nullptr; });
        if (entered == waiting_.end()) continue;  // there was no place for it
        entered->reply = nullptr;
        entered->kept_for = place_kept_over_reload;
        entered->since -= milliseconds(told.value("silent_ms", int64_t{0}));
    }
}

}  // namespace tnr::server
