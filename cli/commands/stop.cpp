// `tnr stop`: switch machines off, keep their disks. The pool takes a GPU back by itself once its last user is gone.
#include "cli/commands/stop.hpp"

#include "api_client/base/interrupt.hpp"
#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"

namespace tnr::cli {
namespace {

void tell_stopped(Session& session, const Known& known, bool was_stopped) {
    if (session.json) return;
    const std::string &name = known.record.name, cost = cost_so_far(session, known.machine, known.record);
    if (was_stopped)
        session.out << "'" << name << "' was already stopped\n";
    else
        session.out << "Stopped '" << name << "'; its disk is kept. `tnr start " << name << "` brings it back\n";
    if (cost.empty()) return;
    session.out << "  " << cost << "; stopped it costs "
                << price_text(known.machine.price.currency, known.machine.price.stopped()) << "\n";
}

// The machine as it is afterwards. What did not go well beside that is added to `troubles`.
Result<nlohmann::json> stop_one(Session& session, const std::string& name, std::vector<Trouble>& troubles) {
    if (auto good = check_machine_name(name); !good) return good.error();
    auto lock = session.records().lock(name);
    if (!lock) return lock.error();
    auto known = find_machine(session, name);
    if (!known) return known.error();
    bool was_stopped = known->machine.state == MachineState::stopped;
    if (!was_stopped) {
        ui::Progress progress(session.screen());
        progress.begin("stopping '" + name + "'");
        if (auto stopped = known->provider->stop(known->machine.id); !stopped) return stopped.error();
        progress.end();
        known->machine.state = MachineState::stopped;
        known->machine.address.clear();
    }
    if (auto noted = note_machine(session, known->machine, known->record); !noted)
        troubles.push_back({name, noted.error()});
    tell_stopped(session, *known, was_stopped);
    return machine_json(known->record, known->machine, "");
}

}  // namespace

Result<> stop(Session& session, const StopOptions& options) {
    auto machines = nlohmann::json::array();
    std::vector<Trouble> troubles;
    for (const auto& name : options.names) {
        auto stopped = stop_one(session, name, troubles);
        if (stopped) machines.push_back(*stopped);
        if (!stopped) troubles.push_back({name, stopped.error()});
        if (interrupt::interrupted()) break;
    }
    return finish(session, "stop", {{"machines", machines}}, troubles);
}

void add_stop(Grammar& tnr, Session& session) {
    auto options = std::make_shared<StopOptions>();
    auto command = tnr.command("stop", "Switch machines off and keep their disks");
    command.required_words("name", options->names, "The machines, as `tnr status` shows them");
    command.footer(
        "Their GPUs are free for others at once.\n\n"
        "Examples:\n  tnr stop demo     and later: tnr start demo\n  tnr stop demo other");
    command.run([&session, options] { session.result = stop(session, *options); });
}

}  // namespace tnr::cli
