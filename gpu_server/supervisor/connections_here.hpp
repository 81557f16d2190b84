// Who is connected to this host, as the kernel tells whoever asks.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>

namespace tnr::server {

// TCP connections that both ends still have open.
struct ConnectionsHere {
    std::set<int> ports;      // at this end
    std::set<ino_t> sockets;  // likewise, by the number of their files
};

// Nothing where the kernel does not tell. Some milliseconds where there are thousands.
std::optional<ConnectionsHere> connections_here();

}  // namespace tnr::server
