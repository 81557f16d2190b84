// See wiper.hpp.
#include "gpu_server/supervisor/wiper.hpp"

#include <memory>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

static int64_t bytes_in(const nlohmann::json& answer, const char* key) {
    auto found = answer.find(key);
    return found != answer.end() && found->is_number_unsigned() ? static_cast<int64_t>(found->get<uint64_t>()) : 0;
}

static void tell_wiped(const Wiped& wiped, int control, int status, milliseconds took) {
    auto received = receive_message(control);
    auto answer = control::parse(received.text.data(), received.text.size());
    if (answer && bytes_in(*answer, "wiped") > 0)
        return wiped({bytes_in(*answer, "wiped"), bytes_in(*answer, "checked"), took.count()}, "");
    if (answer && answer->contains("failed") && (*answer)["failed"].is_string())
        return wiped({}, printable((*answer)["failed"].get<std::string>()));
    wiped({}, "the helper " + describe_exit(status));
}

Wiper make_wiper(EventLoop& loop, Reaper& reaper, const GpuSource& source) {
    return [&loop, &reaper, &source](const FoundGpu& gpu, Wiped wiped) -> Result<> {
        auto plan = source.plan("wipe-gpu", {gpu.selector});
        plan.arguments.push_back(std::to_string(source.wipe_bytes_max()));
        auto child = start_child(plan);
        if (!child) return child.error();
        pid_t pid = child->pid;
        auto timeout = loop.after(wipe_timeout, [pid] { kill_child(pid); });
        auto began = loop.now();
        auto control = std::make_shared<UniqueFd>(std::move(child->control));
        reaper.expect(pid, [&loop, control, timeout, began, wiped = std::move(wiped)](int status) {
            loop.cancel(timeout);
            tell_wiped(wiped, control->get(), status, std::chrono::duration_cast<milliseconds>(loop.now() - began));
        });
        return Ok{};
    };
}

}  // namespace tnr::server
