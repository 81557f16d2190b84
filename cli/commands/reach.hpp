// Ways between here, a machine and its pool.
#pragma once

#include "cli/session.hpp"
#include "cli/ssh/client.hpp"

namespace tnr::cli {

// A machine that its provider calls running may still be booting for about this long.
inline constexpr std::chrono::seconds ssh_patience{60};

// Waits a little for SSH, and shows that it does.
Result<std::unique_ptr<ssh::Client>> reach(Session& session, const std::string& name,
                                           std::chrono::milliseconds patience = ssh_patience);

// The address by which a machine reaches the pool that the user reaches at `address`: a pool on our own loopback is
// somewhere else for a machine (Provider::pool_host), or out of its reach.
Result<std::string> pool_address_for(const std::string& pool_host, const std::string& address);

}  // namespace tnr::cli
