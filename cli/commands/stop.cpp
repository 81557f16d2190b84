// `tnr stop`: switch a machine off, keep its disk. The pool takes the GPU back by itself once its last user is gone.
#include "cli/commands/stop.hpp"

#include "cli/commands/commands.hpp"
#include "cli/json_out.hpp"

namespace tnr::cli {
namespace {

Result<> tell(Session& session, const std::string& name, bool was_stopped) {
    if (session.json)
        print_json(session.out, {{"name", name}, {"state", "stopped"}, {"was_stopped", was_stopped}});
    else if (was_stopped)
        session.out << "'" << name << "' was already stopped\n";
    else
        session.out << "Stopped '" << name << "'; its disk is kept. `tnr start " << name << "` brings it back\n";
    return Ok{};
}

}  // namespace

Result<> stop(Session& session, const StopOptions& options) {
    if (auto good = check_machine_name(options.name); !good) return good;
    auto lock = session.records().lock(options.name);
    if (!lock) return lock.error();
    auto known = find_machine(session, options.name);
    if (!known) return known.error();
    if (known->machine.state == MachineState::stopped) return tell(session, options.name, true);
    auto progress = session.progress();
    progress.begin("stopping '" + options.name + "'");
    if (auto stopped = known->provider->stop(known->machine.id); !stopped) return stopped.error();
    progress.end();
    return tell(session, options.name, false);
}

void add_stop(Grammar& tnr, Session& session) {
    auto options = std::make_shared<StopOptions>();
    auto command = tnr.command("stop", "Switch a machine off and keep its disk");
    command.required("name", options->name, "The machine, as `tnr status` shows it");
    command.footer("Its GPU is free for others at once.\n\nExample:\n  tnr stop demo     and later: tnr start demo");
    command.run([&session, options] { session.result = stop(session, *options); });
}

}  // namespace tnr::cli
