// What a command works with. Everything from outside (clock, network, folders, terminal) comes in through here, so
// that a test can give a command a world of its own.
#pragma once

#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "api_client/cloud.hpp"
#include "cli/clouds.hpp"
#include "cli/logins.hpp"
#include "cli/machine_access.hpp"
#include "cli/money/budget.hpp"
#include "cli/money/history.hpp"
#include "cli/records.hpp"
#include "cli/silent_pools.hpp"
#include "cli/ui/progress.hpp"
#include "cli/ui/text.hpp"

namespace tnr::cli {

// What `tnr` itself ends with; `run` and `connect -- CMD` pass on the program's own code instead.
inline constexpr int exit_done = 0, exit_failed = 1, exit_usage = 2, exit_sign_in = 4;

struct Session {
    std::ostream& out = std::cout;  // results alone
    std::ostream& err = std::cerr;  // everything else
    std::istream& in = std::cin;    // answers to questions
    bool in_is_terminal = false, out_is_terminal = false, err_is_terminal = false;
    bool out_redraws = false, err_redraws = false;  // a terminal that obeys escape sequences, as all but dumb ones do
    bool json = false;                              // --json: one document on `out`
    bool yaml = false;                              // beside `json`: the document as YAML
    bool explain = false;                           // --explain: each request to a cloud on `err`
    ui::Paint out_paint = {}, err_paint = {};
    std::function<int()> err_columns = {};    // the terminal's width now; empty: not known
    std::function<ui::Size()> out_size = {};  // likewise, of `out`

    std::string config_folder = {}, state_folder = {}, cache_folder = {};
    CloudWorld world = {};  // what drivers get; `provider` and signing in use it
    std::vector<std::string> provider_names = {};
    std::function<Result<std::unique_ptr<Provider>>(const std::string&)> provider = {};
    std::function<Result<std::unique_ptr<Pool>>(const PoolLogin&)> pool = {};
    std::function<std::unique_ptr<MachineAccess>()> access = {};
    std::function<std::string()> now = {};             // UTC, ISO 8601
    std::function<bool(int milliseconds)> pause = {};  // false: interrupted

    // What the command chosen on the command line came to; main reports it.
    Result<> result = Ok{};
    int exit_code = exit_done;  // beside an Error in `result`: instead of the Error's own

    Records records() const { return Records{state_folder + "/machines"}; }
    Logins logins() const { return Logins{config_folder + "/pool.json"}; }
    SilentPools silent_pools() const { return SilentPools{cache_folder + "/silent_pools.json"}; }
    CloudLogins cloud_logins() const { return CloudLogins{config_folder + "/clouds.json"}; }
    History history() const { return History{state_folder + "/history.jsonl"}; }
    Budgets budgets() const { return Budgets{config_folder + "/budgets.json"}; }
    ui::Screen screen() const { return {err, err_redraws, err_paint, err_columns}; }
};

// A step that is mostly done before anybody looks (asking a provider or a pool) is shown from then on.
inline constexpr std::chrono::milliseconds asking_patience{1000};

// A machine the way commands that name one see it: our record and the provider's view.
struct Known {
    Record record;
    std::unique_ptr<Provider> provider = {};
    Machine machine;
};

// `name`, or where it is empty the only machine that this computer knows.
Result<std::string> this_or_only_machine(Session& session, const std::string& name);
// The machine called `name`. Kind not_found when we have no record, or when it was deleted behind our back; the
// error says which.
Result<Known> find_machine(Session& session, const std::string& name);
// The same, and it runs: else the hint says how to make it.
Result<Known> find_running(Session& session, const std::string& name);
// A provider's view of a recorded machine; nothing when it is gone.
Result<std::optional<Machine>> look_up(Provider& provider, const Record& record);

// Writes into the history what the machine is now. The Error, for the command to end with, says what will be missing.
Result<> note_machine(Session& session, const Machine& machine, const Record& record);
// For a command that looks more than once: what cannot be written down waits in `unwritten` for the next time.
Result<> note_machine(Session& session, const Machine& machine, const Record& record, std::vector<Sighting>& unwritten);
// Likewise: "what WHAT could not be written down: WHY".
Error not_written_down(const std::string& what, const Error& why);
// "it has cost $1.23 in 4 h; its GPUs have cost $0.50 in 12 min"; empty when that is nothing. With the machine as it was noted last;
// its pool is asked for the GPUs.
std::string cost_so_far(Session& session, const Machine& machine, const Record& record);

std::string to_string(MachineState state);
// "$0.12/h", "0.0066 EUR/h", "free", or "price unknown".
std::string price_text(const std::string& currency, const std::optional<double>& amount, const std::string& per = "/h");
std::string price_text(const Price& price);

}  // namespace tnr::cli
