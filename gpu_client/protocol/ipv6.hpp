// Addresses with IPv6 literals: tcp://[fd00::1]:14900.
#pragma once

#include <string>
#include <zmq.hpp>

namespace tnr::wire {

inline bool is_ipv6_literal(const std::string& endpoint) {
    return endpoint.starts_with("tcp://[");
}

// ZeroMQ takes IPv6 only when told so; told so for names, it would prefer IPv6 where the other side may have none.
inline void allow_ipv6(zmq::socket_t& socket, const std::string& endpoint) {
    if (is_ipv6_literal(endpoint)) socket.set(zmq::sockopt::ipv6, true);
}

}  // namespace tnr::wire
