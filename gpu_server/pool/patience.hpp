// How long a worker keeps the session of a client that is away; for tests and unusual networks, the environment says otherwise.
#pragma once

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "gpu_client/protocol/limits.hpp"

namespace tnr::server {

inline constexpr const char* grace_variable = "TNR_WORKER_GRACE_MS";
inline constexpr const char* knock_variable = "TNR_WORKER_KNOCK_MS";

// Nothing: the text is no number of milliseconds, such as "30s".
inline std::optional<std::chrono::milliseconds> milliseconds_from(std::string_view text) {
    uint32_t number = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return std::chrono::milliseconds(number);
}

inline std::chrono::milliseconds from_environment(const char* name, std::chrono::milliseconds otherwise) {
    const char* wanted = std::getenv(name);
    return wanted ? milliseconds_from(wanted).value_or(otherwise) : otherwise;
}

// When the network failed …
inline std::chrono::milliseconds grace_for_clients() {
    return from_environment(grace_variable, wire::default_grace);
}
// … and when the connection was closed.
inline std::chrono::milliseconds knock_of_clients() {
    return from_environment(knock_variable, wire::knocks_within);
}

}  // namespace tnr::server
