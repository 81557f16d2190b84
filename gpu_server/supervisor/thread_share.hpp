// The threads of a session's worker. Each alone may have many, and a claim may have many sessions: together they must not take all
// that the host has, which everybody's workers need.
#pragma once

#include <algorithm>

#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/worker/limits.hpp"

namespace tnr::server {

// For the session that begins next: those that serve keep theirs.
inline size_t thread_share(const Claim& claim) {
    size_t left = threads_per_claimed_gpu_max * claim.gpus.size();
    for (const auto& session : claim.sessions)
        if (session.state != Session::State::starting) left -= std::min(left, session.worker->threads);
    return std::clamp(left / 4, threads_per_session_min, worker::threads_max);
}

}  // namespace tnr::server
