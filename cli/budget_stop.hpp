// What becomes of idle machines once a budget is used up: they switch themselves off, as for `--idle-stop` (timers.hpp).
// Each is told when its budget will be used up as things cost now, so that it goes while the laptop is closed, too; when
// that has changed, the next `tnr` tells it. The machine itself sees whether it is at work. One that was started with
// --over-budget is left alone.
#pragma once

#include "cli/overview.hpp"

namespace tnr::cli {

// For `start`: writes into the record when the machine's budget is used up. Asks the pools where a budget counts their GPUs.
Result<> plan_budget_stop(Session& session, Record& record);

// Tells the machines of the overview that run what they do not know yet, side by side, for a few seconds at most, and
// says which ones go off or cannot be told. Without budgets it does nothing.
void obey_budgets(Session& session, Overview& overview);

}  // namespace tnr::cli
