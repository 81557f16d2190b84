// See lasting_settings.hpp.
#include "gpu_server/supervisor/lasting_settings.hpp"

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/addresses.hpp"

namespace tnr::server {

using nlohmann::json;

// Calls `each` with the name of the option and its place in `options`.
template <class Options, class Each>
static void for_each_lasting(Options& options, Each&& each) {
    each("listen", options.listen);
    each("plain", options.plain);
    each("store", options.store);
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
    section["node"] = node_name(options);
    for_each_lasting(options, [&](const char* name, const auto& value) { section[name] = value; });
}

static void tell_changed(const std::string& name) {
    log(LogLevel::warning, "the setting " + name + " has changed, which holds from the next restart (not reload) on");
}

// As the pool knows the node, also where that is its `name` or the host's: under another it would find its GPUs taken, by
// itself. Empty: an older server's, which told only a setting.
static void keep_node(ServeOptions& options, const std::string& before) {
    if (before.empty() || before == node_name(options)) return;
    options.node = before;
    tell_changed("node");
}

Result<> take_over(ServeOptions& options, const Handover& handover) {
    return reading("settings", [&]() -> Result<> {
        auto& section = handover.at("settings");
        keep_node(options, section.at("node").get<std::string>());
        for_each_lasting(options, [&](const char* name, auto& value) {
            auto before = value;
            section.at(name).get_to(before);
            if (before != value) tell_changed(name);
            value = before;
        });
        return Ok{};
    });
}

}  // namespace tnr::server
