// Addresses like tcp://127.0.0.1:14900: their parts, and listening sockets made of them.
#pragma once

#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"

namespace tnr::server {

struct Endpoint {
    std::string host;  // name or address, without the brackets of IPv6; "0.0.0.0" for '*'
    int port = 0;

    bool loopback() const;
    bool wildcard() const { return host == "0.0.0.0" || host == "::"; }
    std::string text() const;  // tcp://host:port
};
Result<Endpoint> parse_endpoint(const std::string& address);

// Ports a firewall lets through, or both 0: the kernel chooses.
struct PortRange {
    int first = 0;
    int last = 0;
};
Result<PortRange> parse_port_range(const std::string& text);

// A TCP socket bound to `host`; port 0: the kernel chooses. `endpoint` receives where.
Result<UniqueFd> bind_to(const std::string& host, int port, Endpoint& endpoint);
// Likewise, and listening. `backlog`: connections that may wait to be accepted.
Result<UniqueFd> listen_on(const std::string& host, int port, int backlog, Endpoint& endpoint);

}  // namespace tnr::server
