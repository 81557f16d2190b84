// Keeps a client's link connected: notices that its connection broke, dials until the worker answers again, and gives
// up when the worker has ended or the grace period is over.
#pragma once

#include <functional>
#include <string>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_client/protocol/link.hpp"

namespace tnr::wire {

class Keeper {
public:
    using milliseconds = std::chrono::milliseconds;
    struct Patience {
        milliseconds grace = default_grace;
        // One attempt. A lost first packet of TCP is sent again after 1 s and 3 s, and a handshake over a slow link
        // takes a few round trips.
        milliseconds attempt{5'000};
        // How long the worker's port must refuse us, or be another worker's, until ours counts as ended; a single refusal may
        // be a router's whim.
        milliseconds refused{1'000};
        // A shorter interruption is not reported.
        milliseconds unnoticed{1'000};
    };
    // All are called on the thread of run().
    struct Hooks {
        std::function<bool()> broken;         // somebody has to receive from now on; false: do not try again
        std::function<void()> trying;         // reconnecting takes longer than `unnoticed`
        std::function<void(bool told)> back;  // after `broken`; `told`: `trying` was called, too
        std::function<void(const char* why)> lost;
    };

    Keeper(Link& link, Patience patience, Hooks hooks);
    // Runs until the link is lost or stop() is called, then closes it. Needs a thread of its own.
    void run();
    void stop();  // any thread, also before run()

private:
    using Clock = std::chrono::steady_clock;
    enum class Outcome { open, failed, late, stopped };
    bool broke();
    Outcome wait(Clock::time_point until);
    const char* reconnect();
    void say_trying(Clock::time_point since);
    bool pause(milliseconds time);

    Link& link_;
    Patience patience_;
    Hooks hooks_;
    UniqueFd stop_;
    bool stopped_ = false;
    bool told_ = false;  // that we are trying
};

}  // namespace tnr::wire
