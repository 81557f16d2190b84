// The operator's commands about a pool's nodes: which there are, and which shall take no more work. They speak to the store,
// so any node's state folder will do, and that node need not run.
#pragma once

#include <iosfwd>
#include <string>

#include "api_client/base/result.hpp"

namespace tnr::server {

struct NodeOptions {
    std::string node;
    std::string state;  // folder of any node of the pool; empty: the default
    std::string store;  // etcd://…; empty: what the folder's server was given
};

Result<> list_nodes(const NodeOptions& options, std::ostream& out);
// It begins no claims from now on; what runs on it goes on.
Result<> drain_node(const NodeOptions& options, bool on, std::ostream& out);
// One that is gone for good: its GPUs may turn up at another.
Result<> remove_node(const NodeOptions& options, std::ostream& out);

}  // namespace tnr::server
