// See ask_server.hpp.
#include "gpu_server/supervisor/ask_server.hpp"

#include <thread>

#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/watch/watch.hpp"

namespace tnr::server {

static Result<ServerNow> ask_once(const StateFolder& folder) try {
    auto text = watch::ask_watch(folder.path(), "/api/now");
    if (!text) return text.error();
    auto process = watch::server_process(folder.path());
    if (!process) return process.error();
    return ServerNow{nlohmann::json::parse(*text), *process};
} catch (const nlohmann::json::exception& error) {
    return Error{Error::Kind::internal, std::string("the server's answer makes no sense: ") + error.what()};
}

// Which cannot be told where the disk is read-only.
static bool runs_on(const StateFolder& folder) {
    auto lock = folder.lock();
    return !lock && lock.error().kind == Error::Kind::usage;
}

Result<ServerNow> ask_server(const StateFolder& folder, std::chrono::milliseconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (true) {
        auto now = ask_once(folder);
        if (now) return now;
        if (!runs_on(folder)) return Error{Error::Kind::usage, now.error().what, now.error().hint};
        if (std::chrono::steady_clock::now() >= until)
            return Error{Error::Kind::internal, "the server on " + folder.path().string() + " does not answer",
                         "its log says more"};
        std::this_thread::sleep_for(server_asked_every);
    }
}

}  // namespace tnr::server
