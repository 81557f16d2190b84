// Who waits for what: requests that are tried again whenever something has changed, in turn, and the queue of those who wait
// for GPUs that others use. See claims.hpp.
//
// A client in the queue asks again and again, by the same nonce, and each time hears its place: after a moment, when that
// has changed. So its connection may break, and a client that is gone loses its place within seconds. Nothing is given to
// one that is not there.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

using nlohmann::json;

static Error too_many_wait() {
    return {Error::Kind::remote, "too many requests wait for a GPU already", "try again later"};
}

// A place for one more of this caller's requests. Where all are taken, who has more than this caller's user would have gives
// up one: so nobody is kept out by others who want more than their share, however many they are together.
bool Claims::place_for(const Caller& caller) {
    size_t of_owner = 0, all = 0;
    std::map<std::string, size_t> of_users;
    for (auto& one : waiting_) {
        if (one.over) continue;
        ++all;
        ++of_users[one.caller.user()];
        of_owner += one.caller.owner() == caller.owner();
    }
    const auto of_user = of_users[caller.user()];
    if (of_owner >= waiting_requests_per_owner_max || of_user >= waiting_requests_per_account_max) return false;
    if (all < waiting_requests_max) return true;
    auto most = std::max_element(of_users.begin(), of_users.end(),
                                 [](auto& one, auto& other) { return one.second < other.second; });
    if (most->second <= of_user + 1) return false;
    auto last = std::find_if(waiting_.rbegin(), waiting_.rend(),
                             [&](const Waiting& one) { return !one.over && one.caller.user() == most->first; });
    give_up(*last, too_many_wait());
    remove_over();
    return true;
}

void Claims::wait_for(Waiting waiting, milliseconds patience, TooLate too_late) {
    if (!place_for(waiting.caller)) return waiting.reply(too_many_wait());
    auto here = waiting_.insert(waiting_.end(), std::move(waiting));
    here->timeout = loop_.after(patience, [this, here, too_late] {
        // A session waits for the pool, too, whatever it has waited for at first.
        auto missed = here->wish ? out_of_touch() : std::nullopt;
        give_up(*here, missed ? *missed : too_late());
        remove_over();
    });
    if (here->wish && wanted_by_others(*here->wish)) try_waiting();  // it has not been tried yet
}

// Nothing begins here then, and nobody is sent to another node.
std::optional<Error> Claims::out_of_touch() const {
    if (!options_.pool) return std::nullopt;
    auto may = options_.pool->may_begin();
    return may ? std::nullopt : std::optional(may.error());
}

// True: we are out of touch with the pool. As a rule that is over in a moment, when etcd's members have chosen another leader or
// one of them has been restarted: `again` then has the reply. `waiting` is taken then, and has no attempt yet. What we know of
// the other nodes is of before: they are looked at first. Their leases may have ended meanwhile, too: those that have what is
// wanted are waited for, until they have registered again.
bool Claims::wait_for_pool(Waiting& waiting, const GpuWish& wish, bool begins,
                           std::function<void(const Reply&)> again) {
    const auto missed = out_of_touch();
    if (!missed) return false;
    enum class Look { wanted, under_way, done };
    waiting.attempt = [=, this, look = std::make_shared<Look>(Look::wanted)](Waiting& one) {
        if (out_of_touch()) {
            if (*look == Look::done) *look = Look::wanted;
            return false;
        }
        if (*look == Look::wanted) {
            *look = Look::under_way;
            options_.pool->look(about_others(one.caller, wish, begins), [this, look] {
                *look = Look::done;
                try_waiting();
            });
        }
        if (*look != Look::done || is_missed(wish)) return false;
        one.over = true;  // it takes no place from the one that begins
        again(std::exchange(one.reply, nullptr));
        return true;
    };
    wait_for(std::move(waiting), pool_missed_for, [this, wish, missed = *missed] {
        auto found = check_wish(wish);
        return out_of_touch() || found ? missed : found.error();
    });
    return true;
}

// No node that we know of has as many.
bool Claims::is_missed(const GpuWish& wish) const {
    auto found = check_wish(wish);
    return !found && found.error().kind == Error::Kind::usage;
}

void Claims::once_in_touch(const Caller& caller, const GpuWish& wish, const Reply& reply,
                           std::function<void(const Reply&)> then) {
    Waiting waiting{caller, reply, {}};
    if (gpus_.count(wish.gpu) >= wish.count || !wait_for_pool(waiting, wish, false, then)) then(reply);
}

void Claims::give_up(Waiting& waiting, const Error& error) {
    if (waiting.over) return;
    waiting.over = true;
    loop_.cancel(waiting.timeout);
    if (auto reply = std::exchange(waiting.reply, nullptr)) reply(error);
}

// Not while try_waiting() walks over them: it does so itself.
void Claims::remove_over() {
    if (!trying_) waiting_.remove_if([](const Waiting& one) { return one.over; });
}

// An attempt may itself change something: then all are tried once more.
void Claims::try_waiting() {
    try_again_ = true;
    if (trying_ || paused_) return;
    trying_ = true;
    while (try_again_) {
        try_again_ = false;
        ahead_.clear();
        for (auto* one : in_turn()) {
            if (one->over || try_one(*one)) continue;
            // Who comes later must leave it as many, so that many GPUs are not waited for in vain by those who want few.
            bool counts = one->wish && !beyond_limit(one->caller, one->limits, one->wish->count) &&
                          !begun_.overspent(one->caller.user(), loop_.now());
            if (counts && !find(one->caller, one->wish->gpu)) note_ahead(one->caller, *one->wish);
        }
    }
    ahead_.clear();
    trying_ = false;
    remove_over();
}

static bool share_a_claim(const Caller& one, const Caller& other) {
    return one.account == other.account && one.machine == other.machine && one.owner() == other.owner();
}

// A machine's programs share a claim, which the first of them makes.
void Claims::note_ahead(const Caller& caller, const GpuWish& wish) {
    auto shares = [&](const Ahead& other) { return other.wish.gpu == wish.gpu && share_a_claim(caller, other.caller); };
    if (std::none_of(ahead_.begin(), ahead_.end(), shares)) ahead_.push_back({caller, wish});
}

int Claims::ahead_of(const Caller& caller, const GpuWish& wish) const {
    int gpus = 0;
    for (auto& other : ahead_) {
        if (other.wish.gpu != wish.gpu) continue;
        gpus += share_a_claim(caller, other.caller) ? std::max(other.wish.count - wish.count, 0) : other.wish.count;
    }
    return gpus;
}

bool Claims::try_one(Waiting& waiting) {
    const bool gone = waiting.asker.gone();
    // One that is not in the queue has no place to come back to: should its client ask again, that is another request.
    if (gone && !waiting.queued) {
        waiting.reply = nullptr;
        give_up(waiting, {});
        return true;
    }
    if (!waiting.reply || waiting.gone_since || gone) return false;
    if (!waiting.attempt(waiting)) return false;
    if (waiting.queued) tally_.queue_seconds.add(std::chrono::duration<double>(loop_.now() - waiting.entered).count());
    waiting.over = true;
    loop_.cancel(waiting.timeout);
    return true;
}

// ---- the queue

bool Claims::wanted_by_others(const GpuWish& wish) const {
    return std::any_of(waiting_.begin(), waiting_.end(),
                       [&](const Waiting& one) { return !one.over && one.wish && one.wish->gpu == wish.gpu; });
}

int Claims::held(const Caller& caller) const {
    return shares_.held(caller.user()) + (options_.pool ? options_.pool->held_elsewhere(caller.account) : 0);
}

bool Claims::beyond_limit(const Caller& caller, const UserLimits& limits, int more) const {
    return limits.gpus_max && held(caller) + more > *limits.gpus_max;
}

std::optional<Error> Claims::begins_too_many(const Caller& caller) {
    if (!begun_.overspent(caller.user(), loop_.now())) return std::nullopt;
    if (begun_timer_ == 0)
        begun_timer_ = loop_.after(sessions_begun_looked_at_every, [this] {
            begun_timer_ = 0;
            try_waiting();
        });
    return Error{Error::Kind::remote,
                 caller.user() + " begins more than " + std::to_string(std::lround(sessions_begun_per_second_max)) +
                     " programs a second on GPUs",
                 "begin fewer, or let them wait for their turn: `tnr run --wait 5m`, or TNR_WAIT=300"};
}

// Who has the highest priority comes first; of several, who has used least for his weight; of one user's, who came first.
std::vector<Claims::Waiting*> Claims::in_turn() {
    std::vector<std::pair<std::pair<int, double>, Waiting*>> all;
    const auto now = loop_.now();  // one for all: what was used fades while we look
    for (auto& one : waiting_)
        all.push_back({{-one.limits.priority, shares_.used(one.caller.user(), now) / one.limits.weight}, &one});
    std::stable_sort(all.begin(), all.end(), [](auto& one, auto& other) { return one.first < other.first; });
    std::vector<Waiting*> order;
    for (auto& [rank, one] : all) order.push_back(one);
    return order;
}

std::vector<Claims::Place> Claims::places() {
    std::vector<Place> places;
    std::map<std::string, int> last;
    for (auto* one : in_turn())
        if (!one->over && one->queued) places.push_back({one, ++last[one->wish->gpu]});
    for (auto& place : places) place.of = last[place.waiting->wish->gpu];
    for (auto& place : places)
        for (auto& other : places)
            place.above += other.waiting->wish->gpu == place.waiting->wish->gpu &&
                           other.waiting->limits.priority > place.waiting->limits.priority;
    return places;
}

std::vector<Claims::InQueue> Claims::queue() {
    std::vector<InQueue> all;
    for (auto& place : places()) {
        auto& waiting = *place.waiting;
        all.push_back({waiting.caller, *waiting.wish, place.place, place.of, waiting.limits.priority,
                       std::chrono::duration_cast<milliseconds>(loop_.now() - waiting.entered)});
    }
    return all;
}

void Claims::enter_queue(const Caller& caller, const GpuWish& wish, const Process& process, const Reply& reply,
                         EventLoop::Clock::time_point waits_since) {
    if (process.nonce.empty())
        return reply(Error{Error::Kind::usage, "who waits for a GPU has to send a nonce to be known by"});
    if (!place_for(caller)) return reply(too_many_wait());
    Waiting waiting{caller, reply, {}, wish, options_.limits(caller.account)};
    waiting.attempt = [this](Waiting& one) {
        return try_session(one.caller, *one.wish, one.process, one.reply, one.entered);
    };
    waiting.queued = true;
    waiting.process = process;
    waiting.asker = Asker(process.connection);
    waiting.entered = waits_since;
    waiting.since = loop_.now();
    waiting.kept_for = place_kept_for;
    waiting.until = waits_since + wish.wait;
    auto longer = std::find_if(waiting_.rbegin(), waiting_.rend(),
                               [&](const Waiting& one) { return !one.queued || one.entered <= waits_since; });
    waiting_.insert(longer.base(), std::move(waiting));
    if (lines_of_waiting_.take(caller.user(), loop_.now()))
        log(LogLevel::info, caller.label() + " waits for " + std::to_string(wish.count) + " " + wish.gpu);
    if (queue_timer_ == 0) queue_timer_ = loop_.after(queue_looked_at_every, [this] { look_at_queue(); });
    try_waiting();  // with others in the queue, it has not been tried yet
}

// True: its client has kept its place in the queue by asking again.
bool Claims::asked_again(const Caller& caller, const GpuWish& wish, const Process& process, const Reply& reply) {
    for (auto& one : waiting_) {
        if (!one.queued || one.over || process.nonce.empty() || one.process.nonce != process.nonce ||
            one.caller.owner() != caller.owner() || one.wish->gpu != wish.gpu || one.wish->count != wish.count)
            continue;
        if (auto lost = std::exchange(one.reply, reply)) lost(Error{Error::Kind::remote, "it was asked again"});
        one.process = process;
        one.asker = Asker(process.connection);
        one.gone_since.reset();
        one.limits = options_.limits(caller.account);
        one.wish->place = wish.place;
        one.since = loop_.now();
        one.kept_for = place_kept_for;
        return true;
    }
    return false;
}

void Claims::look_at_queue() {
    queue_timer_ = 0;
    auto places = this->places();
    for (auto& place : places) look_at(place);
    remove_over();
    ask_others();
    if (std::any_of(waiting_.begin(), waiting_.end(), [](const Waiting& one) { return one.queued; }))
        queue_timer_ = loop_.after(queue_looked_at_every, [this] { look_at_queue(); });
    if (!places.empty()) try_waiting();  // somebody ahead may be gone, somebody who was not there be back
}

// Another node may have a GPU first.
void Claims::ask_others() {
    if (!options_.pool || loop_.now() - others_asked_ < others_asked_every) return;
    Question question;
    for (auto& one : waiting_) {
        if (one.over || !one.queued) continue;
        question.accounts.insert(one.caller.account);
        question.free[one.wish->gpu] = std::max(question.free[one.wish->gpu], one.wish->count);
    }
    if (question == Question{}) return;
    others_asked_ = loop_.now();
    options_.pool->look(question, [this] { try_waiting(); });
}

void Claims::look_at(const Place& place) {
    Waiting& waiting = *place.waiting;
    auto now = loop_.now();
    if (waiting.wish->wait.count() < control::wait_s_max && now >= waiting.until) {
        if (auto missed = out_of_touch()) return give_up(waiting, *missed);
        if (auto reply = std::exchange(waiting.reply, nullptr))
            refuse_all_in_use(waiting.caller, *waiting.wish,
                              "; it waited for " + std::to_string(waiting.wish->wait.count()) + " s", reply);
        return give_up(waiting, {});
    }
    if (!waiting.reply) {
        if (now - waiting.since < waiting.kept_for) return;
    } else if (waiting.asker.gone()) {
        if (!waiting.gone_since) waiting.gone_since = now;
        if (now - *waiting.gone_since < asker_returns_within) return;
    } else {
        waiting.gone_since.reset();
        if (place.place == waiting.wish->place && now - waiting.since < place_told_every) return;
        waiting.since = now;
        waiting.wish->place = place.place;
        json told = {{"place", place.place}, {"of", place.of}};
        if (place.above > 0) told["above"] = place.above;
        std::exchange(waiting.reply, nullptr)(json{{"queued", told}});
        return;
    }
    if (lines_of_waiting_.take(waiting.caller.user(), now))
        log(LogLevel::info, waiting.caller.label() + " does not wait any more");
    waiting.reply = nullptr;
    give_up(waiting, {});
}

// ---- what one is told who does not wait

std::optional<Error> Claims::too_few(const Caller& caller, const GpuWish& wish) {
    Claim* claim = find(caller, wish.gpu);
    if (!claim || claim->ending || wish.count <= static_cast<int>(claim->gpus.size())) return std::nullopt;
    return Error{Error::Kind::usage,
                 caller.label() + " already holds " + std::to_string(claim->gpus.size()) + " " + wish.gpu +
                     " and asks for " + std::to_string(wish.count),
                 "end its other GPU programs first"};
}

Error Claims::all_in_use(const Caller& caller, const GpuWish& wish) {
    auto offered = offered_elsewhere();
    const int total = gpus_.count(wish.gpu) + offered[wish.gpu].total;
    for (auto& gpu : gpus_.all()) offered[gpu.found.type].memory_bytes = gpu.found.memory_bytes;
    auto size_of = [&](const std::string& type) { return static_cast<double>(offered[type].memory_bytes); };
    std::string nearest;
    double distance = 0;
    for (auto& [type, others] : offered) {
        const auto free_here = static_cast<int>(gpus_.available(type, caller.owner()).size());
        if (type == wish.gpu || std::max(free_here, others.most_free) < wish.count) continue;
        double is = std::abs(std::log(size_of(type) / size_of(wish.gpu)));  // as far from half as from twice the memory
        if (!nearest.empty() && is >= distance) continue;
        nearest = type;
        distance = is;
    }
    int wait = 0;
    for (auto& one : waiting_) wait += !one.over && one.queued && one.wish->gpu == wish.gpu;
    Error error{Error::Kind::remote, "all " + std::to_string(total) + " " + wish.gpu + " are in use"};
    if (wait > 0) error.what += ", and " + std::to_string(wait) + (wait > 1 ? " wait" : " waits") + " for them";
    error.hint = (nearest.empty() ? "" : nearest + " is free: --gpu " + nearest + "; or ") +
                 std::string("wait for one: `tnr run --wait 5m`, or TNR_WAIT=300 in the program's environment");
    return error;
}

void Claims::refuse_all_in_use(const Caller& caller, const GpuWish& wish, const std::string& more, const Reply& reply) {
    auto refuse = [=, this] {
        auto error = all_in_use(caller, wish);
        error.what += more;
        reply(std::move(error));
    };
    if (!options_.pool || refusals_looking_ >= refusals_looking_max) return refuse();
    ++refusals_looking_;
    options_.pool->look({.all_free = true}, [this, refuse] {
        --refusals_looking_;
        refuse();
    });
}

}  // namespace tnr::server
