// See gpu_costs.hpp.
#include "cli/gpu_costs.hpp"

#include <algorithm>

#include "cli/money/gpu_time.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {

void ask_gpu_costs(Session& session, Overview& overview) {
    std::optional<int64_t> since;
    std::vector<int64_t> borders;
    for (const auto& view : overview.machines)
        if (auto made = ui::seconds_of(view.record.created); made && !view.record.pool.empty()) {
            since = std::min(since.value_or(*made), *made);
            borders.push_back(*made);
        }
    if (!since) return;
    ui::Progress progress(session.screen());
    progress.begin("asking the pools what GPUs have cost", asking_patience);
    const auto ledgers = ask_pool_ledgers(session, *since, false, borders);
    progress.end();
    for (auto& view : overview.machines)
        for (const auto& ledger : ledgers)
            if (auto made = ui::seconds_of(view.record.created); made && ledger.is_at(view.record.pool))
                view.facts.gpu_cost = gpu_cost_of(ledger, view.record.name, *made);
}

}  // namespace tnr::cli
