// See reaper.hpp.
#include "gpu_server/supervisor/reaper.hpp"

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <vector>

namespace tnr::server {

Reaper::Reaper(EventLoop& loop, std::function<void(int)> asked_to_end)
    : loop_(loop), asked_to_end_(std::move(asked_to_end)) {
    sigset_t set;
    sigemptyset(&set);
    for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGPIPE}) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    sigdelset(&set, SIGPIPE);  // stays pending for ever: writes report EPIPE instead
    signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    loop_.watch(signals_.get(), [this] { read_signals(); });
}

Reaper::~Reaper() {
    loop_.unwatch(signals_.get());
}

void Reaper::read_signals() {
    signalfd_siginfo info;
    bool child = false;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            child = true;
        else
            asked_to_end_(static_cast<int>(info.ssi_signo));
    }
    if (child) reap();
}

// Several deaths may have become one signal, so ask for each child by its id (never for "any": others may fork, too).
void Reaper::reap() {
    std::vector<std::pair<Exited, int>> ended;
    for (auto at = children_.begin(); at != children_.end();) {
        int status = 0;
        if (waitpid(at->first, &status, WNOHANG) == at->first) {
            ended.emplace_back(std::move(at->second), status);
            at = children_.erase(at);
        } else {
            ++at;
        }
    }
    for (auto& [exited, status] : ended) exited(status);
}

}  // namespace tnr::server
