// Lines of the ledger for who only wants to add them up: those that no bill tells apart are one. So what a bill costs does
// not grow with the programs that there were.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "gpu_server/pool/ledger.hpp"
#include "gpu_server/pool/store.hpp"

namespace tnr::server {

// Alike are lines of one account, machine (of programs of `tnr run`: one computer), type and number of GPUs that have ended
// and lie between the same two borders: the hours of UTC, changes of the type's price, and what the asker names. All that is
// reckoned from them (money at the price of then, by day, within a time) is what it was.
class LedgerSums {
public:
    // `borders`: milliseconds since 1970, in any order.
    LedgerSums(std::vector<int64_t> borders, const std::vector<GpuPrice>& prices);
    void add(ClaimRecord claim);

    struct Sum {
        ClaimRecord all;    // from where the first begins to where the last ends; its id is one of theirs
        int64_t lines = 1;  // of the ledger
        int64_t held_ms = 0;
    };
    const std::vector<Sum>& sums() const { return sums_; }

private:
    using Key = std::tuple<std::string, std::string, std::string, int64_t, int64_t, int64_t>;
    // False: it stands alone.
    bool find_key(const ClaimRecord& claim, Key& key) const;

    std::vector<int64_t> borders_;
    std::map<std::string, std::vector<int64_t>> price_changes_;  // by type
    std::map<Key, size_t> places_;                               // in sums_
    std::vector<Sum> sums_;
};

int64_t gpus_of(const ClaimRecord& claim);

}  // namespace tnr::server
