// See ledger_sums.hpp.
#include "gpu_server/supervisor/ledger_sums.hpp"

#include <algorithm>

#include "gpu_client/protocol/control.hpp"

namespace tnr::server {
namespace {

constexpr int64_t ms_per_hour = 3'600'000;

// How many borders come before the time between `from` and `to`; -1 where one is within it.
int64_t part_of(const std::vector<int64_t>& borders, int64_t from, int64_t to) {
    const auto before = std::upper_bound(borders.begin(), borders.end(), from);
    if (before != borders.end() && *before < to) return -1;
    return before - borders.begin();
}

void add_to(LedgerSums::Sum& sum, const ClaimRecord& claim) {
    ++sum.lines;
    sum.held_ms += claim.use.lasted_ms;
    const int64_t end = std::max(sum.all.until_ms(), claim.until_ms());
    sum.all.began_ms = std::min(sum.all.began_ms, claim.began_ms);
    sum.all.use.lasted_ms = end - sum.all.began_ms;
    sum.all.use.bytes_up += claim.use.bytes_up;
    sum.all.use.bytes_down += claim.use.bytes_down;
    sum.all.use.busy_ms += claim.use.busy_ms;
    if (!claim.wipe) return;
    auto& wipe = sum.all.wipe ? *sum.all.wipe : sum.all.wipe.emplace();
    wipe.bytes += claim.wipe->bytes;
    wipe.checked_bytes += claim.wipe->checked_bytes;
    wipe.took_ms += claim.wipe->took_ms;
}

}  // namespace

int64_t gpus_of(const ClaimRecord& claim) {
    return std::count(claim.devices.begin(), claim.devices.end(), ',') + 1;
}

LedgerSums::LedgerSums(std::vector<int64_t> borders, const std::vector<GpuPrice>& prices)
    : borders_(std::move(borders)) {
    std::sort(borders_.begin(), borders_.end());
    for (const auto& price : prices) price_changes_[price.gpu].push_back(price.since_ms);
    for (auto& [gpu, changes] : price_changes_) std::sort(changes.begin(), changes.end());
}

bool LedgerSums::find_key(const ClaimRecord& claim, Key& key) const {
    const int64_t from = claim.began_ms, to = claim.until_ms(), hour = from / ms_per_hour;
    // One that lasted for no time at all is on no bill.
    if (!claim.ended || from >= to || hour != (to - 1) / ms_per_hour) return false;
    auto part = part_of(borders_, from, to);
    auto changes = price_changes_.find(claim.gpu);
    const auto price = changes == price_changes_.end() ? 0 : part_of(changes->second, from, to);
    if (part < 0 || price < 0) return false;
    // Prices and borders begin a new part within an hour; more of them than 2^20 there are not.
    key = {claim.account, claim.machine, claim.gpu, gpus_of(claim), hour, (part << 20) + price};
    return true;
}

void LedgerSums::add(ClaimRecord claim) {
    claim.machine = control::any_run_of_host(claim.machine);
    Key key;
    const bool alike = find_key(claim, key);
    if (alike) {
        auto [place, is_new] = places_.try_emplace(key, sums_.size());
        if (!is_new) return add_to(sums_[place->second], claim);
    }
    const int64_t held_ms = claim.use.lasted_ms;
    sums_.push_back({std::move(claim), 1, held_ms});
}

}  // namespace tnr::server
