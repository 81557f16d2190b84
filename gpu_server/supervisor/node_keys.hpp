// The keys of the pool's other nodes. A node asks the others what they have with the key that its own clients know it by, and
// is let in for that and nothing else. Any thread.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "api_client/base/mutex.hpp"

namespace tnr::server {

class NodeKeys {
public:
    // Names by key.
    void set(std::map<std::string, std::string> names) TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        names_ = std::move(names);
    }
    // Whose this is.
    std::optional<std::string> find(const std::string& public_key) const TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        auto found = names_.find(public_key);
        return found == names_.end() ? std::nullopt : std::optional(found->second);
    }

private:
    mutable Mutex mutex_;
    std::map<std::string, std::string> names_ TNR_GUARDED_BY(mutex_);
};

// What connections and requests of a node count for. No account has such a name.
inline std::string node_account(const std::string& node) {
    return "node:" + node;
}

}  // namespace tnr::server
