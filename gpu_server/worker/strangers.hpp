// Connections to a worker's socket that have proven no key yet. Whoever reaches the port can make them, and each may make
// ZeroMQ hold a message of batch_bytes_max before it is asked for a key; so there are only so many. With one more, that goes
// which has waited longest of the address that has most of them: the client, who comes from elsewhere, is in meanwhile.
#pragma once

#include <list>
#include <map>
#include <string>
#include <zmq.hpp>

#include "api_client/base/mutex.hpp"

namespace tnr::worker {

class Strangers {
public:
    // The session's, as text; empty: plain text.
    explicit Strangers(const std::string& secret_key);
    Strangers(const Strangers&) = delete;
    Strangers& operator=(const Strangers&) = delete;

    // What wire::Channel::serve() wants. ZeroMQ's threads call them.
    const zmq_peer_hooks_t* hooks() const { return &hooks_; }
    // The connection is no stranger's.
    void proven(int descriptor) TNR_EXCLUDES(mutex_);

private:
    void accepted(int descriptor, const std::string& address) TNR_EXCLUDES(mutex_);
    void end_one() TNR_REQUIRES(mutex_);

    zmq_peer_hooks_t hooks_{};
    unsigned char secret_key_[32] = {};
    Mutex mutex_;
    std::map<std::string, std::list<int>> waiting_ TNR_GUARDED_BY(mutex_);  // by address; who came first is first
    size_t count_ TNR_GUARDED_BY(mutex_) = 0;
};

}  // namespace tnr::worker
