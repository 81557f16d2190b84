// Calls of ZeroMQ in threads that may get signals: those of a program that uses our libraries.
#pragma once

#include <cerrno>

#include <zmq.hpp>

namespace tnr::wire {

// Makes the call again for as long as signals interrupt it. Those that do not wait are interrupted, too: a poll(2) that has
// no time says EINTR while a signal is pending. An interrupted call has done nothing.
template <class Call>
auto uninterrupted(Call&& call) {
    while (true) {
        try {
            return call();
        } catch (const zmq::error_t& error) {
            if (error.num() != EINTR) throw;
        }
    }
}

}  // namespace tnr::wire
