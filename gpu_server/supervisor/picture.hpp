// The pool as it is now, put together from those who know the parts: what is published (watch/), and what clients are told.
#pragma once

#include "gpu_server/supervisor/books.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/handler.hpp"
#include "gpu_server/supervisor/membership.hpp"
#include "gpu_server/watch/pool_state.hpp"

namespace tnr::server {

// Whoever is on an open pool sees all of it: its clients are this machine's own. So do operators, and the pool's other nodes.
bool sees_all(const Caller& caller);

struct Painter {
    Gpus& gpus;
    Claims& claims;
    Books& books;
    Handler& handler;
    const Membership& members;
    watch::NodeState node;
    bool open = false;  // the pool has no keys
    std::string pool = {};

    watch::PoolState picture();
    // Who does not see all sees what is theirs.
    nlohmann::json told_to(const Caller& caller);
};

}  // namespace tnr::server
