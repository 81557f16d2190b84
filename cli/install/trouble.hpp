// What can be wrong with a machine that software shall be put on, and what its owner can do about it.
#pragma once

#include <optional>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::install {

// What a machine says of itself.
struct System {
    std::string architecture;  // as `uname -m` says it
    std::string c_library;     // "glibc 2.36", "musl libc (x86_64)"; anything else where nobody knows
};

// Nothing when our libraries can run there; `machine` is its name.
std::optional<Error> unsuitable(const System& system, const std::string& machine);

// A command of ours failed there, and said `words`, in English (LC_ALL=C). `doing` completes "… on 'demo' failed".
Error explained(const std::string& doing, const std::string& words, const std::string& machine);

}  // namespace tnr::install
