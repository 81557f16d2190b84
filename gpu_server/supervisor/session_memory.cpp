// The memory of a claim's GPUs among its sessions: what each wants, and what the others give back for it. See claims.hpp.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

// Whether another session is about to give back some of this GPU's memory.
static bool memory_comes_back(const Claim& claim, const Session& wanting, size_t device) {
    return std::any_of(claim.sessions.begin(), claim.sessions.end(), [&](const Session& other) {
        bool leaving = other.away || other.state == Session::State::ending || !other.worker->last_word.empty() ||
                       other.worker->state == Worker::State::dying || other.asked_back[device];
        return &other != &wanting && leaving && other.granted_bytes[device] > 0;
    });
}

// False: there is not as much, and the answer is still due. `nothing_too`: then the answer is nothing.
bool Claims::grant(Session& session, const MemoryWish& wish, bool nothing_too) {
    auto& memory = gpus_.at(session.worker->gpus[wish.device]).memory;
    uint64_t bytes = wish.exactly ? memory.answer_exactly(wish.bytes)
                                  : memory.answer(wish.bytes, session.granted_bytes[wish.device]);
    if (bytes == 0 && wish.bytes > 0 && !nothing_too) return false;
    memory.grant(bytes);
    session.granted_bytes[wish.device] += bytes;
    workers_.tell(*session.worker, {{"granted", {{"ticket", wish.ticket}, {"bytes", bytes}}}});
    return true;
}

// Asks the claim's other sessions for what they do not use. One that has just been asked is left alone: a program that
// looks for the most that it can have asks many times.
void Claims::ask_back(Claim& claim, const Session& wanting, const MemoryWish& wish) {
    for (auto& other : claim.sessions) {
        bool has_some = &other != &wanting && other.connected && other.granted_bytes[wish.device] > 0;
        if (!has_some || loop_.now() - other.asked_back_at < asked_back_every) continue;
        other.asked_back_at = loop_.now();
        other.asked_back[wish.device] = true;
        workers_.tell(*other.worker, {{"memory_wanted", {{"device", wish.device}, {"bytes", wish.bytes}}}});
    }
}

bool Claims::memory_returned(Worker& worker, const MemoryBack& back) {
    Claim* claim = nullptr;
    auto* session = session_of(worker, &claim);
    if (!session) return true;
    auto& granted = session->granted_bytes[back.device];
    if (back.bytes > granted) return false;
    granted -= back.bytes;
    gpus_.at(worker.gpus[back.device]).memory.take_back(back.bytes);
    session->asked_back[back.device] = false;
    try_held(*claim);
    return true;
}

void Claims::memory_wanted(Worker& worker, const MemoryWish& wish) {
    Claim* claim = nullptr;
    auto* session = session_of(worker, &claim);
    if (!session) return;
    if (grant(*session, wish, false)) return;
    ask_back(*claim, *session, wish);
    bool waits = session->held.size() < held_wishes_max && memory_comes_back(*claim, *session, wish.device);
    if (grant(*session, wish, !waits)) return;
    auto held = session->held.insert(session->held.end(), {wish, 0});
    held->timer = loop_.after(wish_held_for, [this, claim, session, held] {
        grant(*session, held->wish, true);
        for (auto& other : claim->sessions) other.asked_back[held->wish.device] = false;  // they do not answer
        session->held.erase(held);
    });
}

void Claims::try_held(Claim& claim) {
    for (auto& session : claim.sessions)
        std::erase_if(session.held, [&](Session::HeldWish& held) {
            if (!grant(session, held.wish, !memory_comes_back(claim, session, held.wish.device))) return false;
            loop_.cancel(held.timer);
            return true;
        });
}

}  // namespace tnr::server
