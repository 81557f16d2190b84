// See reload_command.hpp.
#include "gpu_server/supervisor/reload_command.hpp"

#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "gpu_server/supervisor/ask_server.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/state_folder.hpp"

namespace tnr::server {
namespace {

using nlohmann::json;

// All that a server takes for it, and a start.
constexpr auto replaced_within = handover_answered_within + handover_rests_within + milliseconds(15'000);

// What the server says of itself.
struct SeenServer {
    std::string version, why_failed;
    uint64_t done = 0, failed = 0;
    int64_t since_ms = 0;
    size_t claims = 0;
};

Result<SeenServer> seen(const json& now) try {
    auto& node = now.at("nodes").at(0);
    if (!node.contains("reloads"))
        return Error{Error::Kind::usage,
                     "the server that runs there is older than this command, and cannot be replaced",
                     "restart it: systemctl restart tnr-gpu-server"};
    auto& reloads = node.at("reloads");
    return SeenServer{node.at("version").get<std::string>(), reloads.at("why_failed").get<std::string>(),
                      reloads.at("done").get<uint64_t>(),    reloads.at("failed").get<uint64_t>(),
                      node.at("since").get<int64_t>(),       now.at("claims").size()};
} catch (const json::exception& error) {
    return Error{Error::Kind::internal, std::string("the server's answer makes no sense: ") + error.what()};
}

// Nothing: it is not known yet.
std::optional<Result<>> outcome(const SeenServer& before, const SeenServer& now, std::ostream& out) {
    if (now.failed > before.failed)
        return Error{Error::Kind::internal, "the server was not replaced, and goes on: " + now.why_failed,
                     "its log says more; once that is mended, try again"};
    if (now.done > before.done) {
        out << "Replaced by " << now.version << "; " << now.claims << (now.claims == 1 ? " claim goes" : " claims go")
            << " on\n";
        return Ok{};
    }
    if (now.since_ms == before.since_ms) return std::nullopt;
    return Error{Error::Kind::internal, "the new server has begun anew, and the programs that ran have ended",
                 "its log says why"};
}

}  // namespace

Result<> reload(const std::string& state, std::ostream& out) {
    auto folder = StateFolder::find(state);
    if (!folder) return folder.error();
    const auto give_up_at = std::chrono::steady_clock::now() + replaced_within;
    auto server = ask_server(*folder, replaced_within);
    if (!server) return server.error();
    auto before = seen(server->says);
    if (!before) return before.error();
    if (kill(server->process, SIGHUP) != 0)
        return Error{Error::Kind::internal, std::string("cannot ask the server: ") + std::strerror(errno)};
    while (std::chrono::steady_clock::now() < give_up_at) {
        std::this_thread::sleep_for(server_asked_every);
        auto answer = ask_server(*folder, milliseconds(0));
        if (!answer && answer.error().kind == Error::Kind::usage)
            return Error{Error::Kind::internal, "the server has ended, and with it the programs that ran",
                         "its log says why"};
        if (!answer) continue;
        auto now = seen(answer->says);
        if (!now) return now.error();
        if (auto known = outcome(*before, *now, out)) return *known;
    }
    return Error{Error::Kind::internal, "the server has not said in time whether it was replaced", "its log says more"};
}

}  // namespace tnr::server
