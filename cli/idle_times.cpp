// See idle_times.hpp.
#include "cli/idle_times.hpp"

#include "cli/side_by_side.hpp"
#include "cli/timers.hpp"

namespace tnr::cli {
namespace {

bool counts(const MachineView& view) {
    return view.machine && view.machine->state == MachineState::running && !view.machine->address.empty() &&
           view.record.step >= Step::installed && has_timers(view.record);
}

}  // namespace

void ask_idle_times(Session& session, Overview& overview) {
    ui::Progress progress(session.screen());
    progress.begin("asking machines for their idle time", asking_patience);
    std::vector<std::unique_ptr<MachineAccess>> ways;
    std::vector<std::function<void()>> questions;
    for (auto& view : overview.machines) {
        if (!counts(view)) continue;
        ways.push_back(session.access());
        questions.push_back([&view, way = ways.back().get()] {
            if (auto idle = way->idle_for(*view.machine, view.record)) view.facts.idle_s = *idle;
        });
    }
    side_by_side(session, questions);
    progress.end();
}

}  // namespace tnr::cli
