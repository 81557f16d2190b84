// See lasting_settings.hpp.
#include "gpu_server/supervisor/lasting_settings.hpp"

#include "gpu_server/pool/log.hpp"

namespace tnr::server {

using nlohmann::json;

// Calls `each` with the name of the option and its place in `options`.
template <class Options, class Each>
static void for_each_lasting(Options& options, Each&& each) {
    each("listen", options.listen);
    each("plain", options.plain);
    each("store", options.store);
    each("node", options.node);
    each("driver", options.gpus.driver);
    each("emulate", options.gpus.emulate);
    each("emulated-memory", options.gpus.emulated_memory_mib);
    each("worker-bind", options.worker_bind);
    each("worker-address", options.worker_address);
    each("worker-ports, the first", options.worker_ports.first);
    each("worker-ports, the last", options.worker_ports.last);
    each("one-port", options.one_port);
}

void hand_over(const ServeOptions& options, Handover& handover) {
    auto& section = handover.section("settings") = json::object();
    for_each_lasting(options, [&](const char* name, const auto& value) { section[name] = value; });
}

Result<> take_over(ServeOptions& options, const Handover& handover) {
    return reading("settings", [&]() -> Result<> {
        auto& section = handover.at("settings");
        for_each_lasting(options, [&](const char* name, auto& value) {
            auto before = value;
            section.at(name).get_to(before);
            if (before != value)
                log(LogLevel::warning, std::string("the setting ") + name +
                                           " has changed, which holds from the next restart (not reload) on");
            value = before;
        });
        return Ok{};
    });
}

}  // namespace tnr::server
