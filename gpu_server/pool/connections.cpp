// See connections.hpp.
#include "gpu_server/pool/connections.hpp"

namespace tnr::server {

bool Connections::opened(int descriptor, const std::string& key) {
    closed(descriptor);
    if (of(key) >= per_key_max_) return false;
    keys_[descriptor] = key;
    ++counts_[key];
    return true;
}

void Connections::closed(int descriptor) {
    auto found = keys_.find(descriptor);
    if (found == keys_.end()) return;
    auto count = counts_.find(found->second);
    if (--count->second == 0) counts_.erase(count);
    keys_.erase(found);
}

size_t Connections::of(const std::string& key) const {
    auto found = counts_.find(key);
    return found == counts_.end() ? 0 : found->second;
}

}  // namespace tnr::server
