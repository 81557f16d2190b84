// See waiting.hpp.
#include "cli/commands/waiting.hpp"

#include "api_client/base/interrupt.hpp"

namespace tnr::cli {
namespace {

constexpr int state_poll_ms = 1000;   // clouds count requests; nobody notices a second
constexpr int state_polls_max = 900;  // 15 minutes: the slowest cloud machine with room to spare

}  // namespace

Result<> wait_while(Session& session, Provider& provider, Machine& machine, MachineState state) {
    for (int polls = 0; polls < state_polls_max; ++polls) {
        auto now = provider.machine(machine.id);
        if (!now) return now.error();
        machine = *now;
        if (machine.state != state) return Ok{};
        if (!session.pause(state_poll_ms)) return interrupt::error();
    }
    return Error{Error::Kind::remote, "the machine is still " + to_string(state) + " after 15 minutes",
                 "`tnr start " + machine.name + "` waits on"};
}

}  // namespace tnr::cli
