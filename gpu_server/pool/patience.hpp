// How long a worker keeps the session of a client that is away; for tests and unusual networks, the environment says otherwise.
#pragma once

#include <chrono>
#include <cstdlib>

#include "gpu_client/protocol/limits.hpp"

namespace tnr::server {

inline std::chrono::milliseconds from_environment(const char* name, std::chrono::milliseconds otherwise) {
    const char* wanted = std::getenv(name);
    return wanted ? std::chrono::milliseconds(std::strtoul(wanted, nullptr, 10)) : otherwise;
}

// When the network failed …
inline std::chrono::milliseconds grace_for_clients() {
    return from_environment("TNR_WORKER_GRACE_MS", wire::default_grace);
}
// … and when the connection was closed.
inline std::chrono::milliseconds knock_of_clients() {
    return from_environment("TNR_WORKER_KNOCK_MS", wire::knocks_within);
}

}  // namespace tnr::server
