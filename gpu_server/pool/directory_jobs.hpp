// What a Directory's threads (threaded_directory.cpp) have to do for its owner.
#pragma once

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
