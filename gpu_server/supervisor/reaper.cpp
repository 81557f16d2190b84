// See reaper.hpp.
#include "gpu_server/supervisor/reaper.hpp"

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

namespace tnr::server {

Reaper::Reaper(EventLoop& loop, std::function<void(int)> asked) : loop_(loop), asked_(std::move(asked)) {
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
            asked_(static_cast<int>(info.ssi_signo));
    }
    if (child) reap();
}

std::vector<pid_t> Reaper::all_but(const std::set<pid_t>& others) const {
    std::vector<pid_t> found;
    for (auto& [pid, exited] : children_)
        if (others.count(pid) == 0) found.push_back(pid);
    return found;
}

void Reaper::look() {
    loop_.after(std::chrono::milliseconds(0), [this] { reap(); });
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
