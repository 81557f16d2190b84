// What a Directory's threads (threaded_directory.cpp) have to do for its owner.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "gpu_server/pool/directory.hpp"

namespace tnr::server {

struct DirectoryJob {
    PoolClaim claim;
    std::function<void(Result<int64_t>)> done;  // empty: to be removed
    std::optional<int64_t> none_since;          // as Backend::add() takes it
};

inline Error not_registered() {
    return {Error::Kind::network, "this node is not registered with the pool at the moment",
            "try again in some seconds; programs that run are not touched"};
}

// Out of `jobs`: those that somebody waits for.
inline std::deque<DirectoryJob> take_claims(std::deque<DirectoryJob>& jobs) {
    std::deque<DirectoryJob> claims, others;
    for (auto& job : jobs) (job.done ? claims : others).push_back(std::move(job));
    jobs = std::move(others);
    return claims;
}

// What the pool has not been told of this node.
struct Untold {
    bool free = false, node = false;
    bool any() const { return free || node; }
    void add(const Untold& more) { free |= more.free, node |= more.node; }
};

struct DirectoryQuestion {
    Question question;
    std::string from;
    std::function<void()> then;
};

}  // namespace tnr::server
