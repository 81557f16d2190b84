// Who is connected to this host's ports, as the kernel tells whoever asks.
#pragma once

#include <optional>
#include <set>

namespace tnr::server {

// Local ports of all TCP connections that both ends still have open; nothing where the kernel does not tell. Some milliseconds
// where there are thousands.
std::optional<std::set<int>> connected_ports();

}  // namespace tnr::server
