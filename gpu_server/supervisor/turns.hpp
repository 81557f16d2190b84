// Requests that wait for their turn. Each peer has a queue of its own, with a limit, and the queues are served round
// robin, one request each. So whoever asks much waits for itself, and everybody else for at most one request of it.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

// A request as it came.
struct Asked {
    std::string public_key;  // proven by the handshake; empty when plain
    std::string route;       // the way back
    int connection = -1;     // descriptor, ZeroMQ's own: closed at any moment, and its number is used again
    std::string text;
    // Whose turn it is. In an open pool nobody has a key: there each connection is a peer.
    const std::string& peer() const { return public_key.empty() ? route : public_key; }
};

class Turns {
public:
    // False: its peer has as much waiting as it may; the request is not taken.
    bool add(Asked&& request);
    std::optional<Asked> next();
    bool empty() const { return queues_.empty(); }

private:
    struct Queue {
        std::deque<Asked> requests;
        size_t bytes = 0;
    };
    std::map<std::string, Queue> queues_;  // none is empty
    std::string last_;                     // who has had its turn
};

}  // namespace tnr::server
