// See timers.hpp.
#include "cli/timers.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

// A machine needs a minute to boot and be set up; who asks for less has mistyped a unit.
constexpr int64_t shortest_s = 60, longest_s = 365LL * 86400;
// A machine whose time is over has this long to go by itself (tnr-idle may wait nearly as long after a boot).
constexpr int64_t overdue_s = 15 * 60;
// Nobody who has left for a coffee finds the machine off; a night costs no more than this.
constexpr int64_t budget_idle_max_s = 15 * 60;

std::optional<int64_t> unit_of(char letter) {
    switch (letter) {
        case 's':
            return 1;
        case 'm':
            return 60;
        case 'h':
            return 3600;
        case 'd':
            return 86400;
        default:
            return std::nullopt;
    }
}

std::optional<int64_t> parsed_seconds(const std::string& text) {
    int64_t total = 0;
    const char *at = text.data(), *end = at + text.size();
    if (at == end) return std::nullopt;
    while (at < end) {
        int32_t number = -1;
        auto [after, problem] = std::from_chars(at, end, number);
        if (problem != std::errc{} || number < 0 || after == end) return std::nullopt;
        auto unit = unit_of(*after);
        if (!unit) return std::nullopt;
        total += number * *unit;
        at = after + 1;
    }
    return total;
}

Result<> take(const std::string& text, const std::string& option, int64_t& seconds) {
    if (text.empty()) return Ok{};
    auto wanted = parse_duration(text, option);
    if (!wanted) return wanted.error();
    seconds = *wanted;
    return Ok{};
}

}  // namespace

Result<int64_t> parse_duration(const std::string& text, const std::string& option) {
    if (text == "off") return int64_t{0};
    auto seconds = parsed_seconds(text);
    if (seconds && *seconds >= shortest_s && *seconds <= longest_s) return *seconds;
    return Error{Error::Kind::usage,
                 option + " '" + text + "': " + (seconds ? "from a minute to a year" : "that is no time"),
                 "examples: 30m, 8h, 1h30m, 2d; off ends it"};
}

Result<> wish_timers(Record& record, const std::string& idle_stop, const std::string& ttl) {
    if (auto taken = take(idle_stop, "--idle-stop", record.idle_stop_s); !taken) return taken;
    if (!ttl.empty()) record.ttl_ends = 0;
    return take(ttl, "--ttl", record.ttl_s);
}

void begin_ttl(Record& record, const std::string& now) {
    record.ttl_ends = record.ttl_s > 0 ? ui::seconds_of(now).value_or(0) + record.ttl_s : 0;
}

bool has_timers(const Record& record) {
    return record.idle_stop_s > 0 || record.ttl_s > 0 || record.budget_from > 0;
}

int64_t budget_idle_s(const Record& record) {
    return record.idle_stop_s > 0 ? std::min(record.idle_stop_s, budget_idle_max_s) : budget_idle_max_s;
}

std::string timers_config(const Record& record) {
    std::string text = "# Made by tnr for --idle-stop, --ttl and budgets; /usr/local/lib/tnr/tnr-idle reads it.\n";
    for (auto [name, value] : {std::pair{"idle_stop_s=", record.idle_stop_s},
                               {"ttl_ends=", record.ttl_ends},
                               {"budget_from=", record.budget_from},
                               {"budget_until=", record.budget_until},
                               {"budget_idle_s=", budget_idle_s(record)}})
        text += name + std::to_string(value) + "\n";
    return text;
}

std::optional<int64_t> idle_told(const std::string& text) {
    constexpr std::string_view key = "idle_s=";
    if (!text.starts_with(key)) return std::nullopt;
    int64_t seconds = -1;
    auto [after, problem] = std::from_chars(text.data() + key.size(), text.data() + text.size(), seconds);
    if (problem != std::errc{} || seconds < 0 || after == text.data() + text.size() || *after != '\n')
        return std::nullopt;
    return seconds;
}

std::string timers_text(const Record& record, const Provider& provider, const Price& price) {
    if (!has_timers(record)) return "";
    std::string text;
    auto also = [&](const std::string& when) { text += (text.empty() ? "switches itself off " : ", and ") + when; };
    if (record.idle_stop_s > 0) also("when nobody has used it for " + ui::duration_text(record.idle_stop_s));
    if (record.ttl_s > 0) also(ui::duration_text(record.ttl_s) + " after its start");
    if (record.budget_from > 0)
        also("when nobody has used it for " + ui::duration_text(budget_idle_s(record)) +
             " once its budget is used up, on " + ui::utc_text(record.budget_from) + " as it looks");
    if (price.billed_while_stopped)
        return text + "; " + provider.name() + " bills a machine that is off as well: only `tnr delete " + record.name +
               "` ends that";
    if (!provider.power_off_ends_billing())
        return text + "; at " + provider.name() + " the next `tnr status` or `tnr start` has to end its bill";
    return text;
}

Result<bool> end_overdue(const Record& record, Provider& provider, Machine& machine, const std::string& now) {
    if (!has_timers(record)) return false;
    bool late = record.ttl_ends > 0 && ui::seconds_of(now).value_or(0) > record.ttl_ends + overdue_s;
    bool runs_on = late && machine.state == MachineState::running;
    bool bills_on = machine.state == MachineState::stopped && !provider.power_off_ends_billing();
    if (!runs_on && !bills_on) return false;
    if (auto stopped = provider.stop(machine.id); !stopped) return stopped.error();
    machine.state = MachineState::stopped;
    machine.address.clear();
    return runs_on;
}

}  // namespace tnr::cli
