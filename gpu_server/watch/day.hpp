// The last day of a pool as its nodes' ledgers have it: as JSON, from one node to another, and several nodes' as one.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpu_server/pool/ledger_report.hpp"

namespace tnr::watch {

nlohmann::json to_json(const server::LedgerReport& report);
// Another node's, which may be of another build. Nothing: it makes no sense.
std::optional<server::LedgerReport> report_from_json(const nlohmann::json& told);

// What `from` has is added to `to`, user by user, and to the part of `to` in which the middle of its own lies: each node's
// day ends when it is read.
void add(server::LedgerReport& to, const server::LedgerReport& from);

// What another node has said.
struct FellowDay {
    std::string node;
    std::shared_ptr<const nlohmann::json> day;  // null: nothing
    int64_t earlier_ms = 0;                     // when it said that, if it does not answer now; 0: lately, or never
    bool gone = false;                          // it is not a node of the pool now
    int64_t gpus = 0;                           // that it had when it said it
    bool operator==(const FellowDay&) const = default;
};

// `own`, with what others have said. Its "nodes" are those of which it is: `own_node` and those that answer; of others it has what
// they said "earlier" ("node", "at", "gone", "gpus"). Of the pool's `others`, "silent" are those that have said nothing that makes
// sense, and "gone" those of which is known no more than that.
nlohmann::json whole_day(server::LedgerReport own, const std::string& own_node, const std::vector<std::string>& others,
                         const std::vector<FellowDay>& said);

}  // namespace tnr::watch
