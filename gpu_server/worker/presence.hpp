// How long a worker waits for a client whose connection has ended.
//
// The kernel of a killed process closes its connection. A connection that is cut on the way looks the same, but then
// the client knocks again at once. When the network fails, the client falls silent first and may need the whole grace
// period to come back. So a client that was lively until the end gets a moment, and one that was silent the grace
// period. Where we know that it was the kernel, and nobody on the way, who closed it (callers.hpp), nobody is waited for.
#pragma once

#include <chrono>

#include "gpu_client/protocol/limits.hpp"

namespace tnr::worker {

class Presence {
public:
    using milliseconds = std::chrono::milliseconds;
    using Time = std::chrono::steady_clock::time_point;

    // A client connects at once after it was told our address; one that has not within this time never will.
    static constexpr milliseconds comes_within{15'000};
    // Whoever is at the door may be the client, or a stranger who never says anything, so we wait for one handshake.
    static constexpr milliseconds handshakes_within = wire::worker_handshake_timeout;
    // How often we look for silence.
    static constexpr milliseconds look_every = wire::heartbeat_interval;

    struct Patience {
        milliseconds grace = wire::default_grace;
        milliseconds knock = wire::knocks_within;
    };
    Presence(Patience patience, Time now) : patience_(patience), since_(now) {}

    // True the first time.
    bool connected();
    // The client's machine has sent nothing for `silence`.
    void look(milliseconds silence, Time now);
    // `for_good`: by the end of its process, as its kernel has let us know.
    void left(milliseconds silence, Time now, bool for_good = false);
    // Null while it is worth waiting; else why it is not. `somebody`: there is a connection that may be the client's.
    const char* hopeless(bool somebody, Time now) const;
    // When to look again.
    milliseconds next_look() const;

private:
    enum class State { expected, connected, away };
    Patience patience_;
    State state_ = State::expected;
    Time since_;             // of `expected` and `away`
    milliseconds waits_{0};  // without anybody at the door
    Time silent_at_{};       // last seen
    bool for_good_ = false;
};

}  // namespace tnr::worker
