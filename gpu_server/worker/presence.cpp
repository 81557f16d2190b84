// See presence.hpp.
#include "gpu_server/worker/presence.hpp"

#include <utility>

namespace tnr::worker {

// How often we look for a client that is away.
static constexpr std::chrono::milliseconds look_out_every{50};

bool Presence::connected() {
    return std::exchange(state_, State::connected) == State::expected;
}

void Presence::look(milliseconds silence, Time now) {
    if (state_ == State::connected && silence >= wire::silence_suspicious) silent_at_ = now;
}

void Presence::left(milliseconds silence, Time now, bool for_good) {
    look(silence, now);
    for_good_ = for_good;
    state_ = State::away;
    since_ = now;
    bool network = silent_at_ != Time{} && now - silent_at_ < patience_.grace;
    waits_ = network ? patience_.grace : patience_.knock;
}

const char* Presence::hopeless(bool somebody, Time now) const {
    auto waited = now - since_;
    if (state_ == State::expected) return waited < comes_within ? nullptr : "the client never connected";
    if (state_ == State::connected) return nullptr;
    if (for_good_) return "the client has ended";
    if (waited < waits_) return nullptr;
    return somebody && waited < waits_ + handshakes_within ? nullptr : "the client is gone";
}

std::chrono::milliseconds Presence::next_look() const {
    return state_ == State::away ? look_out_every : look_every;
}

}  // namespace tnr::worker
