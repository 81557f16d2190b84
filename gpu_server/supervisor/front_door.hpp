// One port for the control socket and all workers (`serve --one-port`): connections are accepted here, and sent to whom they
// are for.
//
// The first ten bytes of every ZMTP connection say nothing that ZMTP 3 needs in eight of them. A client that was told a number
// for its session's worker has it there; the others have a small one, and are for the control socket. So those bytes are
// looked at, not read, and the connection goes on as a descriptor: nothing that is sent over it passes through here.
//
// Numbers are random, so nobody reaches a worker who was not told of it. One that is not known any more is answered with a
// reset: that is how a client learns that its worker has ended.
//
// Everybody here is a stranger. One thread serves all of them and waits for none: who does not say its ten bytes in time is
// closed, and so is, when too many wait, the one that has waited longest.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "api_client/base/handles.hpp"
#include "api_client/base/mutex.hpp"
#include "api_client/base/result.hpp"
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

struct FrontDoorLimits {
    size_t waiting = greetings_waiting_max;
    size_t waiting_per_source = greetings_waiting_per_source_max;
    milliseconds greeting = greeting_timeout;
};

class FrontDoor {
public:
    // `listener` listens. `control` receives what the control socket has in place of a listening socket (ZMQ_USE_FD).
    static Result<std::unique_ptr<FrontDoor>> open(UniqueFd listener, UniqueFd& control, FrontDoorLimits limits = {});
    ~FrontDoor();

    // A pair of UNIX sockets: `theirs` is what a worker has in place of a listening socket.
    static Result<UniqueFd> pair(UniqueFd& theirs);
    // From now on connections with the number that is returned go to `worker`, until let_nobody_in().
    uint64_t let_in(UniqueFd worker) TNR_EXCLUDES(mutex_);
    void let_nobody_in(uint64_t number) TNR_EXCLUDES(mutex_);
    // A worker goes over from one front door to that of the next server (handover.hpp): under its number, with the sockets that
    // were shown in to it.
    void hand_over(uint64_t number, Handover& handover) TNR_EXCLUDES(mutex_);
    Result<> take_over(uint64_t number, Handover& handover) TNR_EXCLUDES(mutex_);
    // Whether one of these sockets (connections_here.hpp) has been shown in to the worker with this number.
    bool has_one_of(uint64_t number, const std::set<ino_t>& sockets) TNR_EXCLUDES(mutex_);

private:
    struct Waiting {
        UniqueFd connection;
        std::string source;
        std::chrono::steady_clock::time_point since;
    };
    using Waiters = std::list<Waiting>;  // who has waited longest is first

    FrontDoor(UniqueFd listener, UniqueFd control, FrontDoorLimits limits);
    void serve();
    void accept_some();
    void make_room(const std::string& source);
    void look_at(int connection);
    void show_in(Waiting& waiting, uint64_t number) TNR_EXCLUDES(mutex_);
    void remove(Waiters::iterator waiting);
    void remove_late();
    int until_next() const;

    const FrontDoorLimits limits_;
    const UniqueFd listener_, control_;
    UniqueFd poll_, stop_;
    // The thread's.
    Waiters waiting_;
    std::map<int, Waiters::iterator> by_descriptor_;
    std::map<std::string, size_t> by_source_;

    Mutex mutex_;
    struct Behind {
        UniqueFd worker;
        std::deque<ino_t> shown_in;  // the last ones
    };
    std::map<uint64_t, Behind> workers_ TNR_GUARDED_BY(mutex_);  // by number
    std::thread thread_;
};

}  // namespace tnr::server
