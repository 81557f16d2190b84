// The connection over which a session was asked for. While its client has not connected to the worker, this is all that
// tells whether there still is a client: a program that is killed has its connection closed by its kernel.
#pragma once

#include <cstdint>

#include "api_client/base/handles.hpp"

namespace tnr::server {

// A connection of ZeroMQ's, which closes it at any moment; then the descriptor's number is used again, by whatever comes
// next. The socket's own number, the kernel's, never is.
struct PeerConnection {
    int descriptor = -1;
    uint64_t socket = 0;  // 0: not known
};
// Of a connection that is open; 0 where the kernel does not tell (SO_COOKIE, socket(7)).
uint64_t socket_number(int descriptor);

class Asker {
public:
    Asker() = default;  // no connection to look at
    // Keeps a duplicate, if it is that connection still.
    explicit Asker(PeerConnection connection);
    bool gone() const;
    // ZeroMQ notices, and closes it.
    void cut() const;

private:
    UniqueFd connection_;
    bool closed_ = false;  // before we could duplicate it
};

}  // namespace tnr::server
