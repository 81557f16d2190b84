// Claims: who has which GPUs. The sessions within them are in sessions.cpp. See claims.hpp.
#include "gpu_server/supervisor/claims.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "api_client/base/text.hpp"
#include "gpu_server/pool/clock.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

Claims::Claims(EventLoop& loop, Gpus& gpus, Workers& workers, Books& books, ClaimOptions options)
    : loop_(loop), gpus_(gpus), workers_(workers), books_(books), options_(std::move(options)) {
    workers_.on({[this](Worker& worker) { worker_ready(worker); },
                 [this](Worker& worker) { return client_connected(worker); },
                 [this](Worker& worker, bool away) { return client_away(worker, away); },
                 [this](Worker& worker, const WorkerUse& use) { return worker_used(worker, use); },
                 [this](Worker& worker, const MemoryBack& back) { return memory_returned(worker, back); },
                 [this](Worker& worker, const MemoryWish& wish) { memory_wanted(worker, wish); },
                 [this](Worker& worker, const std::string& how) { worker_gone(worker, how); }});
    gpus_.on_change([this] {
        if (options_.pool) options_.pool->changed();
        try_waiting();
    });
    gpus_.on_wiped([this](int index, const WipeRecord& wipe) {
        if (auto last = last_claims_.extract(index)) books_.wiped(last.mapped(), wipe);
    });
}

Claims::~Claims() = default;

// ---- which GPUs

std::map<std::string, Elsewhere> Claims::offered_elsewhere() const {
    return options_.pool ? options_.pool->offered_elsewhere() : std::map<std::string, Elsewhere>();
}

Result<> Claims::check_wish(const GpuWish& wish) const {
    int there = gpus_.count(wish.gpu);
    if (there >= wish.count) return Ok{};
    auto types = gpus_.types();
    int most = there, total = there;
    for (auto& [type, others] : offered_elsewhere()) {
        types.insert(type);
        if (type == wish.gpu) most = std::max(most, others.most), total += others.total;
    }
    if (types.empty())
        return Error{Error::Kind::remote, "all GPUs of this pool are out of order", "the server's log says why"};
    if (total == 0)
        return Error{Error::Kind::usage,
                     "the pool has no '" + printable(wish.gpu) + "'; it has: " + comma_separated(types)};
    if (total >= wish.count && most < wish.count)
        return Error{Error::Kind::usage, "no node of the pool has " + std::to_string(wish.count) + " " + wish.gpu +
                                             "; the largest has " + std::to_string(most)};
    // Another node has as many, and is out of reach or drained: else the program would have been sent there.
    if (most >= wish.count)
        return Error{Error::Kind::remote,
                     "this node has " + std::to_string(there) + " " + wish.gpu + ", not " + std::to_string(wish.count) +
                         ", and the program could not be sent to one that has them",
                     "try again later"};
    return Error{Error::Kind::usage,
                 "the pool has " + std::to_string(total) + " " + wish.gpu + ", not " + std::to_string(wish.count)};
}

Claim* Claims::find(const Caller& caller, const std::string& gpu) const {
    for (auto& claim : claims_)
        if (claim->belongs_to(caller) && claim->owner == caller.owner() && claim->gpu == gpu) return claim.get();
    return nullptr;
}

uint64_t Claims::device_memory_max(const Caller& caller, const std::string& gpu) const {
    if (auto* claim = find(caller, gpu)) return claim->device_memory_max;
    return options_.limits(caller.account).device_memory_max.value_or(UINT64_MAX);
}

bool Claim::soon_over() const {
    return std::all_of(sessions.begin(), sessions.end(), [&](const Session& session) {
        return session.state == Session::State::ending || session.worker->state == Worker::State::dying ||
               !session.worker->last_word.empty();
    });
}

Result<std::vector<int>> Claims::would_get(const Caller& caller, const GpuWish& wish) {
    if (auto sound = check_wish(wish); !sound) return sound.error();
    std::vector<int> found;
    auto add = [&](const std::vector<int>& more) {
        for (int index : more)
            if (std::find(found.begin(), found.end(), index) == found.end()) found.push_back(index);
    };
    if (auto* claim = find(caller, wish.gpu)) add(claim->gpus);
    add(in_order(caller.owner(), wish.gpu));
    // After the free ones those that may become free.
    for (auto state : {Gpu::State::wiping, Gpu::State::kept, Gpu::State::claimed})
        add(gpus_.with_state(wish.gpu, state));
    found.resize(std::min(found.size(), static_cast<size_t>(wish.count)));
    return found;
}

// Called when not enough GPUs are available. True: there will be soon, because some are being wiped, are kept for
// somebody else, or belong to a claim that ends.
bool Claims::make_room(const Caller& caller, const GpuWish& wish) {
    auto missing = wish.count + ahead_of(caller, wish) -
                   static_cast<int>(gpus_.available(wish.gpu, caller.owner()).size() +
                                    gpus_.with_state(wish.gpu, Gpu::State::wiping).size());
    for (auto& claim : claims_)
        if (claim->gpu == wish.gpu && claim->soon_over()) missing -= static_cast<int>(claim->gpus.size());
    auto kept = gpus_.with_state(wish.gpu, Gpu::State::kept), mine = gpus_.kept_for(wish.gpu, caller.owner());
    std::erase_if(kept, [&](int index) { return std::find(mine.begin(), mine.end(), index) != mine.end(); });
    if (missing > static_cast<int>(kept.size())) return false;
    kept.resize(static_cast<size_t>(std::max(missing, 0)));
    if (!kept.empty()) log(LogLevel::info, labels(kept) + ": kept, and wanted by another");
    gpus_.give_back(kept);
    return true;
}

std::string Claims::labels(const std::vector<int>& gpus) {
    std::string text;
    for (int index : gpus) text += (text.empty() ? "" : ", ") + gpus_.at(index).label();
    return text;
}

// ---- their life

// Those that it left a moment ago come first: the free ones stay clean. Then those with a worker that waits already.
std::vector<int> Claims::in_order(const std::string& owner, const std::string& gpu) const {
    auto rank = [&](int index) {
        auto& one = gpus_.all()[static_cast<size_t>(index)];
        if (one.state == Gpu::State::kept) return std::pair{0, 0};
        auto told = described_.find(index);
        int whose = 1;  // nobody's
        if (told != described_.end() && told->second.until > loop_.now()) whose = told->second.owner == owner ? 0 : 2;
        return std::pair{one.warm && one.warm->state == Worker::State::warm ? 1 : 2, whose};
    };
    auto found = gpus_.available(gpu, owner);
    std::stable_sort(found.begin(), found.end(), [&](int one, int other) { return rank(one) < rank(other); });
    return found;
}

Result<Claim*> Claims::make_claim(const Caller& caller, const GpuWish& wish) {
    auto claim = std::make_unique<Claim>();
    claim->account = caller.account;
    claim->machine = caller.machine;
    claim->gpu = wish.gpu;
    claim->user = caller.user();
    claim->owner = caller.owner();
    claim->public_key = caller.public_key;
    claim->gpus = in_order(claim->owner, wish.gpu);
    claim->gpus.resize(static_cast<size_t>(wish.count));
    claim->device_memory_max = options_.limits(claim->account).device_memory_max.value_or(UINT64_MAX);
    claim->began_ms = now_ms();
    std::string devices;
    for (int index : claim->gpus) devices += (devices.empty() ? "" : ",") + gpus_.at(index).found.uuid;
    auto id = books_.begin({0, claim->account, claim->machine, claim->gpu, devices});
    if (!id) return id.error();
    claim->id = *id;
    for (int index : claim->gpus) {
        last_claims_[index] = claim->id;
        described_.erase(index);
        gpus_.at(index).memory.limit_claim(claim->device_memory_max);
    }
    gpus_.claim(claim->gpus, claim->owner);
    log(LogLevel::info, "claim " + std::to_string(claim->id) + ": " + caller.label() + " has " + labels(claim->gpus));
    shares_.began(caller.user(), wish.count, loop_.now());
    ++tally_.claims;
    claims_.push_back(std::move(claim));
    Claim& made = *claims_.back();
    if (options_.pool)
        enter(made, goes_elsewhere(wish) && options_.pool->nothing_elsewhere(made.account) ? Directory::Unless::others
                                                                                           : Directory::Unless::never);
    else
        active(made, made.id);
    return &made;
}

void Claims::enter(const Claim& claim, Directory::Unless unless) {
    PoolClaim entry{"", claim.id, claim.account, claim.machine, claim.gpu, {}, claim.began_ms};
    for (int index : claim.gpus) entry.devices.push_back(gpus_.at(index).found.uuid);
    options_.pool->began(entry, unless,
                         [this, id = claim.id](Result<int64_t> fence) { registered(id, std::move(fence)); });
}

// Null: it has ended meanwhile.
Claim* Claims::registering(int64_t id) {
    auto found = std::find_if(claims_.begin(), claims_.end(), [&](auto& claim) { return claim->id == id; });
    return found == claims_.end() || (*found)->ending ? nullptr : found->get();
}

void Claims::registered(int64_t id, Result<int64_t> fence) {
    Claim* claim = registering(id);
    if (!claim) return;
    if (!fence)  // out of touch with the pool: the queue waits for that, too
        return out_of_touch() ? end_or_wait_on(*claim, fence.error()) : refuse(*claim, fence.error());
    if (*fence == 0) return enter_beside_others(*claim);
    begin(*claim, *fence);
}

// registering → active, or ending. Its user may have asked several nodes at the same moment, none of which knew of the others'
// claims. Those that were registered before this one are known now: it ends if it is beyond the limit with them.
void Claims::begin(Claim& claim, int64_t fence) {
    if (is_beyond_limit(claim, fence)) return end_or_wait_on(claim, too_many(claim));
    active(claim, fence);
    for (auto& session : claim.sessions)
        if (session.state == Session::State::starting && session.worker->state == Worker::State::warm)
            serve(claim, session);
}

void Claims::active(Claim& claim, int64_t fence) {
    claim.fence = fence;
    books_.count(claim.id);
}

static constexpr const char* claim_moved = "its machine has a claim at another node";

// registering still, or ending. Its account has claims elsewhere, of which we have just heard: a program of a machine that has
// one there belongs there.
void Claims::enter_beside_others(Claim& claim) {
    for (auto& session : claim.sessions) {
        if (!session.reply || !goes_elsewhere(session.wish)) continue;
        auto node = options_.pool->elsewhere(session.caller, session.wish, PoolLink::Need::its_claim);
        if (!node) continue;
        std::exchange(session.reply, nullptr)(*node);
        end_session(session, claim_moved);
    }
    const bool wanted = std::any_of(claim.sessions.begin(), claim.sessions.end(),
                                    [](auto& one) { return one.reply && one.state != Session::State::ending; });
    if (!wanted) return end(claim, claim_moved);
    if (is_beyond_limit(claim, INT64_MAX)) return end_or_wait_on(claim, too_many(claim));
    enter(claim, Directory::Unless::never);
}

bool Claims::is_beyond_limit(const Claim& claim, int64_t fence) const {
    const auto most = options_.limits(claim.account).gpus_max;
    return most && held_before(claim, fence) + std::ssize(claim.gpus) > *most;
}

Error Claims::too_many(const Claim& claim) const {
    return {Error::Kind::remote,
            claim.user + " may use " + options_.limits(claim.account).gpus_in_words() +
                ", and has asked several nodes for more at the same moment",
            "try again when the other programs have ended, or wait for that: --wait"};
}

// registering → ending. Those who wait for an answer hear what helps, which only the pool's store knows.
void Claims::refuse(Claim& claim, const Error& why) {
    for (auto& session : claim.sessions)
        if (auto reply = std::exchange(session.reply, nullptr))
            reply(Error{why.kind, "the GPU could not be claimed: " + why.what, why.hint});
    end(claim, why.what);
}

// registering → ending. Who is willing to wait is back in the queue, where it was; while we are out of touch with the pool,
// those that wait for less than that may last begin anew.
void Claims::end_or_wait_on(Claim& claim, const Error& why) {
    const bool missed = out_of_touch().has_value();
    std::vector<Session> willing;
    for (auto& session : claim.sessions) {
        if (!session.reply || session.state == Session::State::ending) continue;
        if (!session.waits_since && !missed) continue;
        Session& waits = willing.emplace_back();
        waits.caller = session.caller, waits.wish = session.wish, waits.process = session.process;
        waits.reply = std::exchange(session.reply, nullptr);
        waits.waits_since = session.waits_since;
    }
    refuse(claim, why);
    for (auto& one : willing) {
        if (missed && one.wish.wait < pool_missed_for)
            open_session(one.caller, one.wish, one.process, one.reply);
        else
            enter_queue(one.caller, one.wish, one.process, one.reply, *one.waits_since);
    }
}

// GPUs of the claim's account, by claims with smaller numbers.
int Claims::held_before(const Claim& claim, int64_t fence) const {
    int held = options_.pool->held_elsewhere(claim.account, fence);
    for (auto& other : claims_)
        if (other->account == claim.account && other->fence > 0 && other->fence < fence)
            held += static_cast<int>(other->gpus.size());
    return held;
}

void Claims::release(const Caller& caller, const std::string& why) {
    // What it asked for before must not be granted afterwards.
    for (auto& one : waiting_)
        if (one.caller.account == caller.account && one.caller.machine == caller.machine)
            give_up(one, {Error::Kind::remote, why});
    remove_over();
    std::vector<Claim*> mine;
    for (auto& claim : claims_)
        if (claim->belongs_to(caller)) mine.push_back(claim.get());
    for (auto* claim : mine) {
        note_if_unused(*claim);
        end(*claim, why);
    }
    std::vector<int> kept;
    for (auto& gpu : gpus_.all())
        if (gpu.state == Gpu::State::kept && gpu.owner == caller.owner()) kept.push_back(gpu.index);
    gpus_.give_back(kept);
}

void Claims::end_revoked(const IsStillOf& is_still_of) {
    const std::string why = "its key is not enrolled any more";
    auto revoked = [&](auto& whose) {
        return !whose.public_key.empty() && !is_still_of(whose.public_key, whose.account, whose.machine);
    };
    for (auto& one : waiting_)
        if (!one.over && revoked(one.caller)) give_up(one, {Error::Kind::auth, why});
    remove_over();
    std::vector<Claim*> ended;
    for (auto& claim : claims_)
        if (!claim->ending && revoked(*claim)) ended.push_back(claim.get());
    for (auto* claim : ended) end(*claim, why);
}

void Claims::refuse_new(const Error& why) {
    refuses_new_ = why;
    for (auto& one : waiting_) give_up(one, why);
    remove_over();
}

void Claims::end_all(const std::string& why) {
    stopping_ = true;
    for (auto& one : waiting_) give_up(one, {Error::Kind::remote, why});
    remove_over();
    std::vector<Claim*> every;
    for (auto& claim : claims_) every.push_back(claim.get());
    for (auto* claim : every) end(*claim, why);
}

void Claims::end_on(const std::set<std::string>& uuids, const std::string& why) {
    std::vector<Claim*> ended;
    for (auto& claim : claims_)
        if (std::any_of(claim->gpus.begin(), claim->gpus.end(),
                        [&](int index) { return uuids.count(gpus_.at(index).found.uuid) > 0; }))
            ended.push_back(claim.get());
    for (auto* claim : ended) end(*claim, why);
}

void Claims::lease_renewed() {
    for (auto& claim : claims_)
        for (auto& session : claim->sessions)
            if (session.state == Session::State::serving && !session.connected &&
                loop_.now() - session.since > lease_told_after)
                (void)workers_.tell(*session.worker, {{"lease_until_ms", options_.pool->lease_until_ms()}});
    try_waiting();
}

// Whether there are GPUs for it, or soon.
bool Claims::fits_here(const GpuWish& wish, int ahead) {
    if (options_.pool->draining()) return false;
    int soon = 0;
    for (auto state : {Gpu::State::free, Gpu::State::kept, Gpu::State::wiping})
        soon += static_cast<int>(gpus_.with_state(wish.gpu, state).size());
    return soon >= wish.count + ahead;
}

Question Claims::about_others(const Caller& caller, const GpuWish& wish, bool begins) {
    Question question;
    if (!options_.pool || find(caller, wish.gpu)) return question;
    const bool fits = fits_here(wish, ahead_of(caller, wish));
    if (begins && fits && goes_elsewhere(wish) && options_.pool->nothing_elsewhere(caller.account)) return question;
    question.accounts.insert(caller.account);
    if (!fits) question.free[wish.gpu] = wish.count;
    return question;
}

bool Claims::goes_elsewhere(const GpuWish& wish) {
    return wish.hops >= 0 && wish.hops < hops_max;
}

// The claim of this machine may be at another node; else it stays here if it fits.
std::optional<json> Claims::elsewhere(const Caller& caller, const GpuWish& wish, int ahead) {
    if (!options_.pool || !goes_elsewhere(wish) || find(caller, wish.gpu)) return std::nullopt;
    if (auto node = options_.pool->elsewhere(caller, wish, PoolLink::Need::its_claim)) return node;
    if (fits_here(wish, ahead)) return std::nullopt;
    if (auto node = options_.pool->elsewhere(caller, wish, PoolLink::Need::free)) return node;
    bool unfit = gpus_.count(wish.gpu) < wish.count || options_.pool->draining();
    return unfit ? options_.pool->elsewhere(caller, wish, PoolLink::Need::any) : std::nullopt;
}

void Claims::settle(Claim& claim) {
    if (!claim.sessions.empty()) return;
    if (!claim.ending) return end(claim, "its last process has ended", true);
    if (claim.leftovers.empty()) finish(claim);
}

// The ledger is closed at once; the GPUs change hands only when every process on them is dead.
void Claims::end(Claim& claim, const std::string& why, bool keep) {
    claim.keep = claim.keep && keep;
    if (claim.ending) return;
    claim.ending = true;
    claim.why_ending = why;
    log(LogLevel::info,
        "claim " + std::to_string(claim.id) + " of " + machine_label(claim.account, claim.machine) + " ended after " +
            std::to_string(books_.use_of(claim.id).value_or(ClaimUse{}).lasted_ms / 1000) + " s: " + why);
    books_.end(claim.id, why);
    for (auto& session : claim.sessions) end_session(session, why);
    settle(claim);
}

void Claims::finish(Claim& claim) {
    auto gpus = claim.gpus;
    shares_.ended(claim.user, static_cast<int>(gpus.size()), loop_.now());
    auto linger = claim.keep ? options_.linger : milliseconds(0);
    if (options_.pool) options_.pool->ended(claim.id, gpus);
    claims_.remove_if([&](auto& one) { return one.get() == &claim; });
    if (!stopping_) gpus_.keep(gpus, linger);
}

}  // namespace tnr::server
