// Claims: who has which GPUs. The sessions within them are in sessions.cpp. See claims.hpp.
#include "gpu_server/supervisor/claims.hpp"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

int64_t now_ms() {
    auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<milliseconds>(since).count();
}

Claims::Claims(EventLoop& loop, Gpus& gpus, Workers& workers, Store& store, ClaimOptions options)
    : loop_(loop), gpus_(gpus), workers_(workers), store_(store), options_(std::move(options)) {
    workers_.on({[this](Worker& worker) { worker_ready(worker); },
                 [this](Worker& worker, const MemoryWish& wish) { memory_wanted(worker, wish); },
                 [this](Worker& worker, const MemoryWish& wish) { memory_returned(worker, wish); },
                 [this](Worker& worker, const std::string& how) { worker_gone(worker, how); }});
    gpus_.on_change([this] { try_waiting(); });
}

Claims::~Claims() = default;

// ---- waiting

void Claims::wait_for(std::function<bool()> attempt, const Reply& reply, const std::string& what) {
    if (waiting_.size() >= waiting_requests_max)
        return reply(Error{Error::Kind::remote, "the pool is overloaded", "try again later"});
    auto here = waiting_.insert(waiting_.end(), {std::move(attempt), reply, 0});
    here->timeout = loop_.after(worker_start_timeout, [this, here, what] {
        auto answer = std::move(here->reply);
        waiting_.erase(here);
        answer(Error{Error::Kind::remote,
                     what + " was not ready within " + std::to_string(worker_start_timeout.count() / 1000) + " s",
                     "try again; if it stays so, the server's log says why"});
    });
}

// First come, first served. An attempt may change the world again: then all are asked once more.
void Claims::try_waiting() {
    try_again_ = true;
    if (trying_) return;
    trying_ = true;
    while (try_again_) {
        try_again_ = false;
        for (auto at = waiting_.begin(); at != waiting_.end();) {
            if (!at->attempt()) {
                ++at;
                continue;
            }
            loop_.cancel(at->timeout);
            at = waiting_.erase(at);
        }
    }
    trying_ = false;
}

// ---- which GPUs

static std::string enumerate(const std::set<std::string>& names) {
    std::string text;
    for (auto& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

Result<> Claims::check_wish(const GpuWish& wish) const {
    int there = gpus_.count(wish.gpu);
    if (there >= wish.count) return Ok{};
    if (there == 0) {
        auto types = gpus_.types();
        if (types.empty())
            return Error{Error::Kind::remote, "all GPUs of this pool are out of order", "the server's log says why"};
        return Error{Error::Kind::usage, "the pool has no '" + printable(wish.gpu) + "'; it has: " + enumerate(types)};
    }
    return Error{Error::Kind::usage,
                 "the pool has " + std::to_string(there) + " " + wish.gpu + ", not " + std::to_string(wish.count)};
}

Claim* Claims::find(const Caller& caller, const std::string& gpu) {
    for (auto& claim : claims_)
        if (claim->belongs_to(caller) && claim->gpu == gpu) return claim.get();
    return nullptr;
}

Result<std::vector<int>> Claims::would_get(const Caller& caller, const GpuWish& wish) {
    if (auto sound = check_wish(wish); !sound) return sound.error();
    std::vector<int> found;
    if (auto* claim = find(caller, wish.gpu)) found = claim->gpus;
    // The order in which make_claim() would take them; after the free ones those that may become free.
    for (auto state : {Gpu::State::free, Gpu::State::wiping, Gpu::State::claimed})
        for (int index : gpus_.with_state(wish.gpu, state))
            if (std::find(found.begin(), found.end(), index) == found.end()) found.push_back(index);
    found.resize(std::min(found.size(), static_cast<size_t>(wish.count)));
    return found;
}

// Not enough GPUs are free. True: there will be soon, because some are being wiped or their machine has gone quiet.
bool Claims::make_room(const GpuWish& wish) {
    auto missing = wish.count - static_cast<int>(gpus_.with_state(wish.gpu, Gpu::State::free).size() +
                                                 gpus_.with_state(wish.gpu, Gpu::State::wiping).size());
    std::vector<Claim*> quiet;
    for (auto& claim : claims_) {
        if (claim->gpu != wish.gpu || !(claim->ending || claim->sessions.empty())) continue;
        missing -= static_cast<int>(claim->gpus.size());
        if (!claim->ending) quiet.push_back(claim.get());
    }
    if (missing > 0) return false;
    for (auto* claim : quiet) end(*claim, "idle, and its GPU was wanted");
    return true;
}

std::string Claims::labels(const std::vector<int>& gpus) {
    std::string text;
    for (int index : gpus) text += (text.empty() ? "" : ", ") + gpus_.at(index).label();
    return text;
}

// ---- their life

Result<Claim*> Claims::make_claim(const Caller& caller, const GpuWish& wish) {
    auto claim = std::make_unique<Claim>();
    claim->account = caller.account;
    claim->machine = caller.machine;
    claim->gpu = wish.gpu;
    claim->gpus = gpus_.with_state(wish.gpu, Gpu::State::free);
    // Those with a worker that waits already come first.
    std::stable_partition(claim->gpus.begin(), claim->gpus.end(), [&](int index) {
        auto* warm = gpus_.at(index).warm;
        return warm && warm->state == Worker::State::warm;
    });
    claim->gpus.resize(static_cast<size_t>(wish.count));
    claim->began_ms = now_ms();

    std::string devices;
    for (int index : claim->gpus) devices += (devices.empty() ? "" : ",") + gpus_.at(index).found.uuid;
    auto id = store_.begin_claim({0, claim->account, claim->machine, claim->gpu, devices, claim->began_ms});
    if (!id) return id.error();
    claim->id = *id;
    gpus_.claim(claim->gpus);
    log(LogLevel::info, "claim " + std::to_string(claim->id) + ": " + caller.label() + " has " + labels(claim->gpus));
    claims_.push_back(std::move(claim));
    return claims_.back().get();
}

void Claims::release(const Caller& caller, const std::string& why) {
    std::vector<Claim*> mine;
    for (auto& claim : claims_)
        if (claim->belongs_to(caller)) mine.push_back(claim.get());
    for (auto* claim : mine) end(*claim, why);
}

void Claims::end_all(const std::string& why) {
    stopping_ = true;
    while (!waiting_.empty()) {
        auto reply = std::move(waiting_.front().reply);
        loop_.cancel(waiting_.front().timeout);
        waiting_.pop_front();
        reply(Error{Error::Kind::remote, why});
    }
    std::vector<Claim*> every;
    for (auto& claim : claims_) every.push_back(claim.get());
    for (auto* claim : every) end(*claim, why);
}

void Claims::settle(Claim& claim) {
    if (claim.ending) {
        if (claim.sessions.empty() && claim.leftovers.empty()) finish(claim);
        return;
    }
    if (!claim.sessions.empty() || claim.linger) return;
    claim.linger = loop_.after(options_.linger, [this, &claim] {
        claim.linger = 0;
        end(claim, "its last process has ended");
    });
    try_waiting();  // somebody may be waiting for a machine to go quiet
}

// The ledger is closed at once; the GPUs are free only when every process on them is dead and they are wiped.
void Claims::end(Claim& claim, const std::string& why) {
    if (claim.ending) return;
    claim.ending = true;
    claim.why_ending = why;
    loop_.cancel(claim.linger);
    auto ended = now_ms();
    if (auto noted = store_.end_claim(claim.id, ended, why); !noted) log(LogLevel::error, noted.error().what);
    log(LogLevel::info, "claim " + std::to_string(claim.id) + " of " + claim.machine + " ended after " +
                            std::to_string((ended - claim.began_ms) / 1000) + " s: " + why);
    for (auto& session : claim.sessions) {
        loop_.cancel(session.timeout);
        workers_.tell(*session.worker, {{"end", why}});
        session.timeout = loop_.after(goodbye_grace, [this, worker = session.worker] { workers_.kill(*worker); });
    }
    settle(claim);
}

void Claims::finish(Claim& claim) {
    auto gpus = claim.gpus;
    claims_.remove_if([&](auto& one) { return one.get() == &claim; });
    if (!stopping_) gpus_.give_back(gpus);
}

}  // namespace tnr::server
