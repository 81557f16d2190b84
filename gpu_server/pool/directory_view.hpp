// What a node knows of the others: all nodes, and of their claims and free GPUs what it has looked for. Owner's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "gpu_server/pool/directory_backend.hpp"

namespace tnr::server {

class DirectoryView {
public:
    const std::map<std::string, PoolNode>& nodes() const { return nodes_; }
    const std::map<std::string, PoolClaim>& claims() const { return claims_; }

    void apply(const Change& change);
    // Those claims of an account that are in `found` are all that it has.
    void take(const Question& question, const Backend::Found& found);
    // claims() has all that this account began until then, in the store's own count; 0: it was not looked for lately.
    int64_t claims_as_of(const std::string& account) const;

private:
    std::map<std::string, PoolNode> nodes_;
    std::map<std::string, PoolClaim> claims_;
    std::map<std::string, bool> drains_;
    struct Looked {
        int64_t at_ms = 0;  // boot_ms()
        int64_t as_of = 0;
    };
    std::map<std::string, Looked> looked_;  // by account
};

}  // namespace tnr::server
