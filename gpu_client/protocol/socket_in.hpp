// ZeroMQ's sockets inside a program that knows nothing of them.
#pragma once

#include <zmq.hpp>

#include "api_client/base/interrupt.hpp"

namespace tnr::wire {

// A context's threads begin with its first socket, and ZeroMQ has them block signals only once they run. One that the program
// has blocked on its own threads, to look for it when it likes, would end it on ours until then.
inline zmq::socket_t socket_in(zmq::context_t& context, int type) {
    interrupt::SignalsBlocked blocked;
    return {context, type};
}

}  // namespace tnr::wire
