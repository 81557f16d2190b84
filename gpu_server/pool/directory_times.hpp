// When a Directory's threads (threaded_directory.cpp) do again what they have to do again.
#pragma once

#include <chrono>

namespace tnr::server {

// After something failed.
inline constexpr std::chrono::milliseconds register_again_after{500}, renew_again_after{200}, write_again_after{100},
    follow_again_after{300};
// GPUs that belong to another node may be free after a while.
inline constexpr std::chrono::milliseconds refused_asked_every{2'000};
// After another registration, or a write that was refused or whose answer was lost, the store may have claims that we have
// not, and soon what we had free before: a write that nobody waits for any more is done within etcd's own 7 s for a request,
// or never.
inline constexpr std::chrono::milliseconds doubt_lasts{10'000}, doubt_looked_at_every{1'000};
// Claims of others, after they were looked for last.
inline constexpr std::chrono::milliseconds looked_remembered_for{10'000};

}  // namespace tnr::server
