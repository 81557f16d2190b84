// Sessions within claims: from the request to the worker that serves it, and to its end. See claims.hpp.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/keys.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/image_cache.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/thread_share.hpp"

namespace tnr::server {

using nlohmann::json;

static std::string text_of(EventLoop::Clock::duration time) {
    auto tenths = std::chrono::duration_cast<milliseconds>(time).count() / 100;
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

static Error not_ready(const std::string& what) {
    return {Error::Kind::remote,
            what + " was not ready within " + std::to_string(worker_start_timeout.count() / 1000) + " s",
            "try again; if it stays so, the server's log says why"};
}

// As its programs shall see it: with no more memory than they may use.
static json as_told(DeviceDescription device, uint64_t memory_max) {
    device.memory_bytes = std::min(device.memory_bytes, memory_max);
    return to_json(device);
}

// Whom we distrust, beside a key alone.
static std::string all_keys_of(const Caller& caller) {
    return "user " + caller.user();
}

// ---- describe

void Claims::describe(const Caller& caller, const GpuWish& wish, const Reply& reply) {
    once_in_touch(caller, wish, reply, [=, this](const Reply& now) { describe_soon(caller, wish, now); });
}

// As soon as the GPUs have descriptions.
void Claims::describe_soon(const Caller& caller, const GpuWish& wish, const Reply& reply) {
    if (try_describe(caller, wish, reply)) return;
    Waiting waiting{caller, reply, {}};
    waiting.attempt = [this, wish](Waiting& one) { return try_describe(one.caller, wish, one.reply); };
    wait_for(std::move(waiting), worker_start_timeout,
             [wish] { return not_ready("the description of the " + wish.gpu); });
}

bool Claims::try_describe(const Caller& caller, const GpuWish& wish, const Reply& reply) {
    if (auto node = elsewhere(caller, wish)) {
        reply(std::move(*node));
        return true;
    }
    auto gpus = would_get(caller, wish);
    if (!gpus) {
        reply(gpus.error());
        return true;
    }
    json devices = json::array();
    const auto memory_max = device_memory_max(caller, wish.gpu);
    for (int index : *gpus) {
        auto& description = gpus_.at(index).description;
        if (!description) return false;
        devices.push_back(as_told(*description, memory_max));
    }
    for (int index : *gpus)
        if (gpus_.at(index).state == Gpu::State::free)
            described_[index] = {caller.owner(), loop_.now() + described_for};
    reply(json{{"devices", devices}});
    return true;
}

// ---- session

void Claims::open_session(const Caller& caller, const GpuWish& wish, const Process& process, const Reply& reply) {
    if (stopping_) return reply(Error{Error::Kind::remote, "the pool's server is stopping"});
    if (refuses_new_ && !find(caller, wish.gpu)) return reply(*refuses_new_);
    if (options_.one_port && !process.doors)
        return reply(Error{Error::Kind::usage,
                           "all of this pool is behind one port, and this machine's libcuda.so.1 is too old for that",
                           "install the server's version of tnr here"});
    if (auto trusted = refuse_distrusted(caller); !trusted) return reply(trusted.error());
    if (asked_again(caller, wish, process, reply)) return;
    Waiting waiting{caller, reply, {}};
    waiting.asker = Asker(process.connection);
    const auto again = [=, this](const Reply& now) { open_session(caller, wish, process, now); };
    if (wish.wait < pool_missed_for && wait_for_pool(waiting, wish, true, again)) return;
    std::optional<EventLoop::Clock::time_point> waits_since;
    if (wish.wait.count() > 0) waits_since = loop_.now();
    // With others in the queue, it is tried when its turn comes.
    if (!wanted_by_others(wish) || find(caller, wish.gpu))
        if (try_session(caller, wish, process, reply, waits_since)) return;
    auto refusal = too_few(caller, wish);
    if (waits_since && !refusal) return enter_queue(caller, wish, process, reply, *waits_since);
    waiting.attempt = [this, wish, process](Waiting& one) { return try_session(one.caller, wish, process, one.reply); };
    if (refusal) return wait_for(std::move(waiting), earlier_program_ends_within, [refusal] { return *refusal; });
    waiting.wish = wish;
    waiting.limits = options_.limits(caller.account);
    wait_for(std::move(waiting), worker_start_timeout,
             [wish, many = begins_too_many(caller)] { return many.value_or(not_ready("a " + wish.gpu)); });
}

// True: answered, or a session has taken over the reply.
bool Claims::try_session(const Caller& caller, const GpuWish& wish, const Process& process, const Reply& reply,
                         std::optional<EventLoop::Clock::time_point> waits_since) {
    auto refuse = [&](Error error) {
        reply(std::move(error));
        return true;
    };
    if (auto node = elsewhere(caller, wish, ahead_of(caller, wish))) {
        reply(std::move(*node));
        return true;
    }
    if (out_of_touch()) return false;
    if (auto sound = check_wish(wish); !sound) return refuse(sound.error());
    Claim* claim = find(caller, wish.gpu);
    if (claim && claim->ending) return false;  // it starts anew when the old one is gone
    if (claim && answer_again(*claim, process, reply)) return true;
    if (too_few(caller, wish)) return false;  // the program that had them may be about to end
    if (claim && claim->sessions.size() >= sessions_per_claim_max)
        return refuse({Error::Kind::remote, "at most " + std::to_string(sessions_per_claim_max) +
                                                " processes of a machine can use its GPU at once"});
    size_t sessions = 0;
    for (auto& each : claims_) sessions += each->user == caller.user() ? each->sessions.size() : 0;
    if (sessions >= sessions_per_user_max)
        return refuse({Error::Kind::remote, "at most " + std::to_string(sessions_per_user_max) +
                                                " processes of a user can use GPUs at once"});
    if (begins_too_many(caller)) return false;
    if (!claim && options_.pool && options_.pool->draining())
        return refuse({Error::Kind::remote,
                       "this node is being drained: it takes no new programs, and no other has a free GPU of type " +
                           wish.gpu + " for them",
                       "try again later"});
    if (!claim) {
        auto limits = options_.limits(caller.account);
        if (beyond_limit(caller, limits, wish.count)) {
            if (waits_since && wish.count <= *limits.gpus_max) return false;
            return refuse(
                {Error::Kind::usage,
                 caller.user() + " may use " + limits.gpus_in_words() + ", uses " + std::to_string(held(caller)) +
                     " and asks for " + std::to_string(wish.count),
                 std::string(wish.count > *limits.gpus_max ? "ask for fewer" : "end other programs of yours first") +
                     "; the limit is the pool's operator's"});
        }
        auto available = static_cast<int>(gpus_.available(wish.gpu, caller.owner()).size());
        if (available < wish.count + ahead_of(caller, wish)) {
            if (make_room(caller, wish) || waits_since) return false;
            refuse_all_in_use(caller, wish, "", reply);
            return true;
        }
        auto made = make_claim(caller, wish);
        if (!made) return refuse(made.error());
        claim = *made;
    }
    auto added = add_session(*claim, caller, process, reply);
    if (!added) {
        settle(*claim);
        return refuse(added.error());
    }
    (*added)->wish = wish;
    (*added)->waits_since = waits_since;
    return true;
}

Result<> Claims::refuse_distrusted(const Caller& caller) {
    const Distrust* distrust = nullptr;
    const char* to_whom = "";
    for (auto& [whose, name] : {std::pair(caller.owner(), "this key"), {all_keys_of(caller), "this user's machines"}})
        if (auto found = distrusted_.find(whose); found != distrusted_.end() && found->second.until > loop_.now())
            distrust = &found->second, to_whom = name;
    if (!distrust) return Ok{};
    // Who uses one may have more; sessions that nobody connects to would keep a claim for ever, one after the other.
    const auto is_used = [](auto& session) { return session.connected; };
    for (auto& claim : claims_)
        if (claim->belongs_to(caller) && !claim->ending &&
            std::any_of(claim->sessions.begin(), claim->sessions.end(), is_used))
            return Ok{};
    auto wait = std::chrono::ceil<std::chrono::seconds>(distrust->until - loop_.now());
    return Error{Error::Kind::remote,
                 "the last " + std::to_string(distrust->in_a_row) + " GPUs that " + to_whom +
                     " were given were never used; a new one may be asked for in " + std::to_string(wait.count()) +
                     " s",
                 options_.one_port ? "did the programs end before they used the GPU? the pool's log says more"
                                   : "can this machine reach the workers' ports? the pool's operator knows them: "
                                     "--worker-ports"};
}

// The answer to this request was lost with its connection: it is given again, or when there is one.
bool Claims::answer_again(Claim& claim, const Process& process, const Reply& reply) {
    for (auto& session : claim.sessions) {
        if (process.nonce.empty() || session.process.nonce != process.nonce) continue;
        if (session.state == Session::State::ending) continue;
        session.process.connection = process.connection;
        session.asker = Asker(process.connection);
        session.asker_gone_since.reset();
        session.asked_before_reload = false;
        if (session.answer)
            reply(*session.answer);
        else if (auto lost = std::exchange(session.reply, reply))
            lost(Error{Error::Kind::remote, "it was asked again"});
        return true;
    }
    return false;
}

// The waiting worker of the claim's GPU, else one that starts now.
Result<Worker*> Claims::worker_for(Claim& claim) {
    // One claim's many processes leave a port to each GPU, for its next claim.
    if (!claim.sessions.empty() && workers_.ports_left() <= gpus_.all().size())
        return Error{Error::Kind::remote, "the pool has no port left for another process of this machine",
                     "end some of its GPU programs, or ask the pool's operator for more --worker-ports"};
    std::vector<std::string> selectors;
    for (int index : claim.gpus) {
        Gpu& gpu = gpus_.at(index);
        Worker* warm = gpus_.take_warm(gpu);
        if (warm && claim.gpus.size() == 1) return warm;
        if (warm) {  // it sees one GPU only, and this claim has several
            workers_.kill(*warm);
            claim.leftovers.push_back(warm);
        }
        selectors.push_back(gpu.found.selector);
    }
    return workers_.start(claim.gpus, selectors);
}

Result<Session*> Claims::add_session(Claim& claim, const Caller& caller, const Process& process, const Reply& reply) {
    auto worker = worker_for(claim);
    if (!worker) return worker.error();
    Session session;
    session.id = wire::random_id();  // the routing id by which a worker knows its client, so not to be guessed
    session.process = process;
    session.worker = *worker;
    session.granted_bytes.resize(claim.gpus.size());
    session.asked_back.resize(claim.gpus.size());
    session.since = loop_.now();
    session.asker = Asker(process.connection);
    session.caller = caller;
    session.reply = reply;
    auto& added = claim.sessions.emplace_back(std::move(session));
    ++tally_.sessions;
    begun_.spend(caller.user(), 1, loop_.now());
    if (claim.sessions.size() == 2)
        tell_sharing(claim, claim.sessions.front(), true);  // before the new one can do anything
    if (added.worker->state == Worker::State::warm && claim.fence > 0) {
        serve(claim, added);
    } else {
        added.timer = loop_.after(worker_start_timeout, [this, &claim, &added] {
            if (claim.fence > 0) return end_session(added, "its worker did not start in time");
            log(LogLevel::warning, "claim " + std::to_string(claim.id) + ": the pool's store did not take it in time");
            end_session(added, "the pool's store did not take the claim in time");
        });
    }
    return &added;
}

// One that does not serve yet is told when it begins to. A worker that has died is noticed elsewhere.
void Claims::tell_sharing(const Claim& claim, const Session& session, bool shared) {
    if (!claim.ending && session.worker->state == Worker::State::serving)
        (void)workers_.tell(*session.worker, {{"shared", shared}});
}

// starting → serving
void Claims::serve(Claim& claim, Session& session) {
    Worker& worker = *session.worker;
    for (int index : claim.gpus) {
        if (!options_.pool) break;
        auto fence = options_.pool->fence(gpus_.at(index).found.uuid, claim.fence);
        if (!fence) return end(claim, fence.error().what);
        (void)workers_.tell(worker, {{"fence", true}}, fence->get());  // one that is dead is noticed below
    }
    workers_.limit_threads(worker, thread_share(claim));
    if (auto open = workers_.open_door(worker); !open) return end_session(session, open.error().what);
    loop_.cancel(session.timer);
    auto keys = options_.plain ? wire::KeyPair{} : wire::make_key_pair();
    json serve = {{"session", session.id},
                  {"client_key", session.caller.public_key},
                  {"server_public", keys.public_key},
                  {"server_secret", keys.secret_key},
                  {"account", claim.account},
                  {"machine", claim.machine},
                  {"lanes", options_.lanes},
                  {"threads_max", worker.threads},
                  {"shared", claim.sessions.size() > 1},
                  {"device_memory_max", claim.device_memory_max},
                  {"fence", claim.fence}};
    if (options_.pool) serve["lease_until_ms"] = options_.pool->lease_until_ms();
    session.state = Session::State::serving;
    session.timer = loop_.after(asker_looked_at_every, [this, &claim, &session] { look_at_asker(claim, session); });
    worker.state = Worker::State::serving;
    worker.tenant = image_tenant(claim.account, claim.machine);
    if (!workers_.tell(worker, {{"serve", serve}})) return;  // `gone` follows, and answers

    // Unless told otherwise, the host stays open: only the client knows under which one it reaches us.
    Endpoint endpoint{options_.worker_address.empty() ? "*" : options_.worker_address, worker.endpoint.port};
    json devices = json::array();
    for (auto& device : worker.devices) devices.push_back(as_told(device, claim.device_memory_max));
    for (int index : claim.gpus) gpus_.at(index).strikes = 0;
    log(LogLevel::info, "claim " + std::to_string(claim.id) + ": " + session.caller.label() + " process " +
                            std::to_string(session.process.pid) + " (" + printable(session.process.name) +
                            ") is served by worker " + std::to_string(worker.pid));
    json answer{{"endpoint", endpoint.text()}, {"server_key", keys.public_key},
                {"session", session.id},       {"lanes", options_.lanes},
                {"asks_port", true},           {"devices", devices}};
    if (worker.door_number != 0) answer["door"] = worker.door_number;
    session.answer = std::make_shared<json>(std::move(answer));
    std::exchange(session.reply, nullptr)(*session.answer);
}

// Again and again until the client has come: its program may have been killed meanwhile.
void Claims::look_at_asker(Claim& claim, Session& session) {
    session.timer = 0;
    if (session.connected) return;
    if (!session.asker.gone() && !session.asked_before_reload)
        session.asker_gone_since.reset();
    else if (!session.asker_gone_since)
        session.asker_gone_since = loop_.now();
    else if (loop_.now() - *session.asker_gone_since >=
             (session.asked_before_reload ? asker_connects_over_reload : asker_returns_within))
        return end_session(session, "its client has gone before it connected");
    session.timer = loop_.after(asker_looked_at_every, [this, &claim, &session] { look_at_asker(claim, session); });
}

void Claims::end_hungry(const std::function<uint64_t(const Session&)>& bytes_of, uint64_t bytes_max) {
    for (auto& claim : claims_) {
        uint64_t all = 0, most = 0;
        Session* largest = nullptr;
        for (auto& session : claim->sessions) {
            if (session.state != Session::State::serving) continue;
            auto bytes = bytes_of(session);
            all += bytes;
            if (bytes <= most) continue;
            most = bytes;
            largest = &session;
        }
        if (largest && all > bytes_max * claim->gpus.size())
            end_session(*largest, "its machine's programs made their workers hold " + std::to_string(all >> 20) +
                                      " MiB of the GPU node's own memory; the limit is " +
                                      std::to_string(bytes_max * claim->gpus.size() >> 20) + " MiB");
    }
}

void Claims::end_left(const std::function<bool(const Worker&)>& has_client, milliseconds for_so_long) {
    for (auto& claim : claims_)
        for (auto& session : claim->sessions) {
            if (session.state != Session::State::serving || !session.connected) continue;
            if (has_client(*session.worker))
                session.left_since.reset();
            else if (!session.left_since)
                session.left_since = loop_.now();
            else if (loop_.now() - *session.left_since >= for_so_long)
                end_session(session, "its client is gone, which its worker has not noticed");
        }
}

// starting or serving → ending. Its worker is gone soon; `gone` does the rest.
void Claims::end_session(Session& session, const std::string& why) {
    if (session.state == Session::State::ending) return;
    bool serving = session.state == Session::State::serving;
    session.state = Session::State::ending;
    session.why_ending = why;
    loop_.cancel(std::exchange(session.timer, 0));
    Worker* worker = session.worker;
    if (!serving) return workers_.kill(*worker);  // it has no client to say good-bye to
    if (!workers_.tell(*worker, {{"end", why}})) return;
    session.timer = loop_.after(goodbye_grace, [this, worker] { workers_.kill(*worker); });
}

Session* Claims::session_of(const Worker& worker, Claim** its_claim) {
    for (auto& claim : claims_)
        for (auto& session : claim->sessions) {
            if (session.worker != &worker) continue;
            if (its_claim) *its_claim = claim.get();
            return &session;
        }
    return nullptr;
}

int64_t Claims::claim_of(const Worker& worker) {
    Claim* claim = nullptr;
    return session_of(worker, &claim) ? claim->id : 0;
}

// ---- what workers report

void Claims::worker_ready(Worker& worker) {
    gpus_.describe(worker);
    Claim* claim = nullptr;
    auto* session = session_of(worker, &claim);
    if (session && session->state == Session::State::starting && claim->fence > 0) serve(*claim, *session);
    try_waiting();
}

bool Claims::client_connected(Worker& worker) {
    auto* session = session_of(worker);
    if (!session) return true;
    if (std::exchange(session->connected, true)) return false;
    for (auto& whose : {session->caller.owner(), all_keys_of(session->caller)}) distrusted_.erase(whose);
    return true;
}

// Whether a session can have moved and worked so much in this time.
static bool is_possible(const WorkerUse& use, milliseconds time, size_t gpus) {
    const auto ms = static_cast<double>((time + use_told_early).count());
    const double bytes_max = ms * bytes_moved_per_ms_max;
    return static_cast<double>(use.bytes_up) <= bytes_max && static_cast<double>(use.bytes_down) <= bytes_max &&
           static_cast<double>(use.busy_ms) <= ms * static_cast<double>(gpus);
}

bool Claims::worker_used(Worker& worker, const WorkerUse& use) {
    Claim* claim = nullptr;
    auto* session = session_of(worker, &claim);
    if (!session) return true;
    auto& before = session->use;
    if (use.bytes_up < before.bytes_up || use.bytes_down < before.bytes_down || use.busy_ms < before.busy_ms)
        return false;
    if (!is_possible(use, duration_cast<milliseconds>(loop_.now() - session->since), claim->gpus.size())) return false;
    books_.used(claim->id,
                {use.bytes_up - before.bytes_up, use.bytes_down - before.bytes_down, use.busy_ms - before.busy_ms});
    const auto since =
        std::clamp(duration_cast<milliseconds>(loop_.now() - session->told_at), milliseconds{1}, busy_lasts);
    const auto gpu_ms = static_cast<double>(since.count()) * static_cast<double>(claim->gpus.size());
    session->busy_share = std::min(static_cast<double>(use.busy_ms - before.busy_ms) / gpu_ms, 1.0);
    session->told_at = loop_.now();
    before = use;
    return true;
}

bool Claims::client_away(Worker& worker, bool away) {
    Claim* claim = nullptr;
    auto* session = session_of(worker, &claim);
    if (!session) return true;
    if (!session->connected || std::exchange(session->away, away) == away) return false;
    try_held(*claim);
    return true;
}

void Claims::worker_gone(Worker& worker, const std::string& how) {
    if (gpus_.warm_worker_gone(worker, how)) return;
    for (auto& claim : claims_) {
        auto left = std::find(claim->leftovers.begin(), claim->leftovers.end(), &worker);
        if (left != claim->leftovers.end()) {
            claim->leftovers.erase(left);
            return settle(*claim);
        }
        for (auto at = claim->sessions.begin(); at != claim->sessions.end(); ++at)
            if (at->worker == &worker) return session_over(*claim, at, how);
    }
}

void Claims::note_unconnected(const Caller& caller) {
    std::erase_if(distrusted_, [&](auto& one) { return one.second.until + unconnected_pause_max < loop_.now(); });
    note_unconnected(caller.owner(), unconnected_sessions_max);
    note_unconnected(all_keys_of(caller), unconnected_sessions_per_user_max);
}

void Claims::note_unconnected(const std::string& whose, int most) {
    auto& distrust = distrusted_[whose];
    distrust.until = std::max(distrust.until, loop_.now());
    if (++distrust.in_a_row < most) return;
    distrust.pause = std::clamp(distrust.pause * 2, unconnected_pause_min, unconnected_pause_max);
    distrust.until = loop_.now() + distrust.pause;
}

// Who gives back what he never came to has had a GPU all the same, and its wipe, which nobody pays for.
void Claims::note_if_unused(const Claim& claim) {
    const Session* told = nullptr;
    for (auto& session : claim.sessions) {
        if (session.connected) return;
        if (!session.reply) told = &session;
    }
    if (told && !claim.ending) note_unconnected(told->caller);
}

void Claims::session_over(Claim& claim, std::list<Session>::iterator session, const std::string& how) {
    loop_.cancel(session->timer);
    for (auto& held : session->held) loop_.cancel(held.timer);
    for (size_t i = 0; i < claim.gpus.size(); ++i) gpus_.at(claim.gpus[i]).memory.take_back(session->granted_bytes[i]);
    std::string what = session->why_ending;
    if (what.empty()) what = session->worker->last_word.empty() ? "its worker " + how : how;
    log(LogLevel::info, "claim " + std::to_string(claim.id) + ": " + session->caller.label() + " process " +
                            std::to_string(session->process.pid) + " (" + printable(session->process.name) + ") on " +
                            labels(claim.gpus) + " ended after " + text_of(loop_.now() - session->since) + ": " + what);
    // One that did not come up, or left without a word, may have left its GPU in any state: a wipe finds out.
    if (session->reply || session->worker->last_word.empty()) claim.keep = false;
    if (!session->connected && !session->worker->last_word.empty() && !claim.ending) note_unconnected(session->caller);
    Reply unanswered = std::move(session->reply);
    claim.sessions.erase(session);
    try_held(claim);
    if (claim.sessions.size() == 1) tell_sharing(claim, claim.sessions.front(), false);
    if (unanswered)
        unanswered(Error{Error::Kind::remote, "the GPU could not be prepared: " + what,
                         "try again; if it stays so, the server's log says more"});
    settle(claim);
}

}  // namespace tnr::server
