// What this node asks the pool's store about the other nodes, on behalf of whoever asks us: only what can be of use, and
// not too often. Whoever has a key may ask in a loop, and the store is everybody's.
#pragma once

#include <functional>
#include <vector>

#include "gpu_server/pool/directory.hpp"
#include "gpu_server/supervisor/event_loop.hpp"

namespace tnr::server {

class Looks {
public:
    Looks(EventLoop& loop, Directory& directory) : loop_(loop), directory_(directory) {}
    ~Looks() { loop_.cancel(timer_); }
    Looks(const Looks&) = delete;
    Looks& operator=(const Looks&) = delete;

    // As Directory::look(), but `then` runs at once where there is nothing to ask.
    //
    // Looking at everything costs the store the more the larger the pool is. So there is one such look at a time, for all
    // who want one, and then a pause: nine times as long as it took, within look_at_all_pause_min and _max.
    void look(Question question, std::function<void()> then);

private:
    void look_at_all();
    void looked_at_all(EventLoop::Clock::time_point began, const std::vector<std::function<void()>>& waiting);
    bool offered(const std::string& type) const;

    EventLoop& loop_;
    Directory& directory_;
    // Of those who want to look at everything.
    Question wanted_;
    std::vector<std::function<void()>> waiting_;
    bool looking_ = false;
    EventLoop::Clock::time_point paused_until_{};
    EventLoop::TimerId timer_ = 0;
};

}  // namespace tnr::server
