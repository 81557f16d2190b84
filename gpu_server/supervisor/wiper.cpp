// See wiper.hpp.
#include "gpu_server/supervisor/wiper.hpp"

#include <memory>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

static void tell_wiped(const Wiped& wiped, int control, int status) {
    auto received = receive_message(control);
    auto answer = control::parse(received.text.data(), received.text.size());
    if (answer && answer->contains("wiped") && (*answer)["wiped"].is_number_unsigned())
        return wiped((*answer)["wiped"], "");
    if (answer && answer->contains("failed") && (*answer)["failed"].is_string())
        return wiped(0, printable((*answer)["failed"].get<std::string>()));
    wiped(0, "the helper " + describe_exit(status));
}

Wiper make_wiper(EventLoop& loop, Reaper& reaper, const GpuSource& source) {
    return [&loop, &reaper, &source](const FoundGpu& gpu, Wiped wiped) -> Result<> {
        auto plan = source.plan("wipe-gpu", {gpu.selector});
        if (source.emulated()) plan.arguments.push_back(std::to_string(emulated_wipe_bytes));
        auto child = start_child(plan);
        if (!child) return child.error();
        pid_t pid = child->pid;
        auto timeout = loop.after(wipe_timeout, [pid] { kill_child(pid); });
        auto control = std::make_shared<UniqueFd>(std::move(child->control));
        reaper.expect(pid, [&loop, control, timeout, wiped = std::move(wiped)](int status) {
            loop.cancel(timeout);
            tell_wiped(wiped, control->get(), status);
        });
        return Ok{};
    };
}

}  // namespace tnr::server
