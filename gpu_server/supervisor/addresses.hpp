// What `serve` and `check` think of the names and addresses that an operator gives a node.
#pragma once

#include <string>

#include "api_client/base/result.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/supervisor.hpp"

namespace tnr::server {

// Whom the ledger and the other nodes shall name: as told, else the pool's name, else the host's.
std::string node_name(const ServeOptions& options);

// As clients are told of it, as far as that can be seen here.
bool leads_somewhere(const Endpoint& told);

// Kind usage, with what to change: where the node listens, where it says that it is, and where its workers are.
Result<> check_addresses(const ServeOptions& options);

}  // namespace tnr::server
