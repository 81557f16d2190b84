// When a machine switches itself off: after a time in which nobody used it (`--idle-stop`), sooner once its budget is used
// up (budget_stop.hpp), and at an end that was set when it was started (`--ttl`). The machine does it (install/tnr-idle), so it happens while the laptop is closed; where
// a cloud bills on, tnr says so, and does itself what is left to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/session.hpp"

namespace tnr::cli {

// "90s", "30m", "8h", "2d", "1h30m"; "off" is 0. `option` is named in the Error, of kind usage.
Result<int64_t> parse_duration(const std::string& text, const std::string& option);

// What the user asks for now: "" leaves it as it is. `renew`: a time that was set begins again.
Result<> wish_timers(Record& record, const std::string& idle_stop, const std::string& ttl);
void begin_ttl(Record& record, const std::string& now);
bool has_timers(const Record& record);
// After how long an idle machine goes off once its budget is used up.
int64_t budget_idle_s(const Record& record);
// What the machine reads.
std::string timers_config(const Record& record);
// Out of what tnr-idle tells in /run/tnr/idle: for how many seconds nobody has used the machine; nothing when it says none.
std::optional<int64_t> idle_told(const std::string& text);
// What happens then and who does it, for the user of `start`; empty without timers.
std::string timers_text(const Record& record, const Provider& provider, const Price& price);

// Does what is left of a timer that has run out: stops a machine that should have switched itself off and did not, and
// ends the bill of one that did where that is a step of its own. True: it did something, and `machine` is stopped.
Result<bool> end_overdue(const Record& record, Provider& provider, Machine& machine, const std::string& now);

}  // namespace tnr::cli
