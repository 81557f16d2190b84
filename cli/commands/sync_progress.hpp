// What `tnr sync` says while it copies.
#pragma once

#include <chrono>
#include <string>

#include "cli/sync/engine/session.hpp"

namespace tnr::cli {

// "12.0 MiB of 1.0 GiB, 3 files, 11.2 MiB/s, 1 min 30 s left": rate and time are told once a second of copying has shown them.
class SyncProgress {
public:
    using Clock = std::chrono::steady_clock;
    std::string operator()(const sync::Tally& tally, Clock::time_point now);

private:
    Clock::time_point begun_{};  // when nothing had been copied yet
};

}  // namespace tnr::cli
