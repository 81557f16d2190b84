// All that there is: the machines of all clouds one is signed in to and the GPUs of all pools, asked side by side.
// A cloud or a pool that does not answer hides none of the others; it becomes a trouble with its name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/json_out.hpp"
#include "cli/money/costs.hpp"
#include "cli/same_pool.hpp"
#include "cli/session.hpp"

namespace tnr::cli {

struct MachineView {
    Record record;
    std::optional<Machine> machine;
    std::string state, hint;
    MachineFacts facts = {};
};

struct PoolView : PoolAddresses {
    std::optional<Error> error = {};  // why it tells nothing
    std::vector<GpuType> types = {};
    std::vector<GpuClaim> claims = {};  // of our own machines; none where the pool does not tell
};

struct Overview {
    std::vector<MachineView> machines;
    std::vector<PoolView> pools;
    std::vector<Trouble> troubles;
};

struct Scope {
    std::vector<std::string> names = {};  // of machines; empty: all there are
    bool quiet = false;                   // no progress line
};
// What was seen goes into the history. A name that is no machine's is a trouble of kind not_found.
Overview look_around(Session& session, const Scope& scope = {});

// The pools alone, each once (same_pool.hpp).
std::vector<PoolView> look_at_pools(Session& session, std::vector<Trouble>& troubles);

// Where the names of the types that were seen last are kept, a line each, for completion.
std::string seen_gpu_types_path(const Session& session);

nlohmann::json gpu_types_json(const std::vector<GpuType>& types);
nlohmann::json claims_json(const std::vector<GpuClaim>& claims);
// Who has the GPUs of this type: our machines by name. Whether others have the rest, or nobody yet (broken, of a node that is
// drained), the pool does not tell.
std::string holders_of(const GpuType& type, const std::vector<GpuClaim>& claims);

std::string gpu_text(const std::string& type, int count);

}  // namespace tnr::cli
