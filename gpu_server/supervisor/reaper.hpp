// Learns of signals and of the end of children through a descriptor, so that the event loop hears of them like of
// anything else and no handler ever interrupts us.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "api_client/base/handles.hpp"
#include "gpu_server/supervisor/event_loop.hpp"

namespace tnr::server {

class Reaper {
public:
    using Exited = std::function<void(int status)>;

    // Blocks SIGCHLD, SIGTERM, SIGINT, SIGHUP and SIGPIPE: make it before the first thread, which then inherits that. `asked`: to
    // end, or with SIGHUP to be replaced.
    Reaper(EventLoop& loop, std::function<void(int signal)> asked);
    ~Reaper();

    // `exited` is called once, from the loop, after the child has been waited for.
    void expect(pid_t pid, Exited exited) { children_[pid] = std::move(exited); }

    // Children that are nobody's business any more but ours, such as helpers whose owner goes: those that are not among `others`.
    std::vector<pid_t> all_but(const std::set<pid_t>& others) const;
    // Looks for children that have ended, once: of some that it did not expect when they did.
    void look();

private:
    void read_signals();
    void reap();

    EventLoop& loop_;
    std::function<void(int)> asked_;
    UniqueFd signals_;
    std::map<pid_t, Exited> children_;
};

}  // namespace tnr::server
