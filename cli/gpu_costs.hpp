// What machines' GPUs have cost: the ledgers of their pools tell, node by node and page by page, so only who wants it asks.
#pragma once

#include "cli/overview.hpp"

namespace tnr::cli {

// Of each machine since it was made, asked of all pools side by side. Without an answer it stays unknown; that is no trouble.
void ask_gpu_costs(Session& session, Overview& overview);

}  // namespace tnr::cli
