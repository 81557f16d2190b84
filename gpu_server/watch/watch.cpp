// See watch.hpp.
#include "gpu_server/watch/watch.hpp"

#include <nlohmann/json.hpp>

#include "gpu_server/pool/clock.hpp"
#include "gpu_server/watch/limits.hpp"
#include "gpu_server/watch/local_socket.hpp"
#include "gpu_server/watch/metrics.hpp"
#include "gpu_server/watch/page.hpp"

namespace tnr::watch {

using nlohmann::json;

namespace {

constexpr const char* json_type = "application/json";
constexpr int backlog = 64;

// Foreign text may be in it: names of processes. Replaced where it is no UTF-8, and safe inside of HTML, whoever puts it there.
std::shared_ptr<const std::string> text_of(const json& document) {
    std::string text = document.dump(-1, ' ', false, json::error_handler_t::replace), safe;
    for (char c : text) {
        if (c == '<')
            safe += "\\u003c";
        else
            safe += c;
    }
    return std::make_shared<const std::string>(safe + "\n");
}

HttpAnswer plain(int status, std::string text) {
    return {status, "text/plain; charset=utf-8", std::make_shared<const std::string>(std::move(text))};
}

}  // namespace

Result<std::unique_ptr<Watch>> Watch::start(WatchOptions options, const Published& state,
                                            std::unique_ptr<server::LedgerReader> ledger) {
    std::unique_ptr<Watch> made(new Watch(state, std::move(ledger)));
    std::vector<UniqueFd> listeners;
    auto local = listen_locally(watch_socket(options.folder), backlog);
    if (!local) return local.error();
    listeners.push_back(std::move(*local));
    if (options.http) listeners.push_back(std::move(options.http));
    made->loopback_ = options.loopback;
    made->fellows_ = std::move(options.fellows);
    made->fellow_days_ = std::move(options.fellow_days);
    auto started = HttpServer::start(
        std::move(listeners), [watch = made.get()](const HttpRequest& request) { return watch->answer(request); });
    if (!started) return started.error();
    made->server_ = std::move(*started);
    return made;
}

HttpAnswer Watch::answer(const HttpRequest& request) {
    // A page from elsewhere, in a browser on this machine, could read us under a name of its own that it lets point here.
    if (loopback_ && !names_no_stranger(request.host))
        return plain(403, "this address is called by its number, or localhost\n");
    auto state = state_.latest();
    if (request.path == "/") return {200, "text/html; charset=utf-8", page()};
    if (request.path == "/healthz") return healthz(state.get());
    if (request.path != "/metrics" && request.path != "/api/now" && request.path != "/api/day")
        return plain(404, "there is / for people, /metrics, /healthz, /api/now and /api/day\n");
    if (!state) return plain(503, "the server is starting\n");
    begin_texts(state);
    if (request.path == "/api/now") return {200, json_type, now_text()};
    if (request.path == "/api/day") return day();
    return {200, metrics_type, metrics()};
}

HttpAnswer Watch::healthz(const PoolState* state) const {
    if (!state) return plain(503, "the server is starting\n");
    const auto silent_ms = server::now_ms() - state->now_ms;
    if (silent_ms > published_within.count())
        return plain(503, "the supervisor has said nothing for " + std::to_string(silent_ms / 1000) + " s\n");
    return plain(200, "ok\n");
}

void Watch::begin_texts(const std::shared_ptr<const PoolState>& state) {
    if (std::exchange(texts_of_, state) != state) now_ = metrics_ = day_ = nullptr;
}

Watch::Text Watch::now_text() {
    auto told = fellows_ ? fellows_() : FellowsTold();
    if (now_ && told == now_of_) return now_;
    auto now = to_json(*texts_of_);
    now["fellows"] = json::array();
    for (auto& one : told.said) now["fellows"].push_back(*one);
    now["silent"] = told.silent;
    now_of_ = std::move(told);
    return now_ = text_of(now);
}

Watch::Text Watch::metrics() {
    if (!metrics_) metrics_ = std::make_shared<const std::string>(metrics_text(*texts_of_) + process_metrics_text());
    return metrics_;
}

HttpAnswer Watch::day() {
    auto said = fellow_days_ ? fellow_days_() : std::vector<FellowDay>();
    if (day_ && said == day_of_) return {200, json_type, day_};
    auto own = day_book_.fresh();
    if (!own) return plain(500, own.error().what + "\n");
    std::vector<std::string> others;
    for (auto& node : texts_of_->other_nodes) others.push_back(node.name);
    day_ = text_of(whole_day(**own, texts_of_->nodes.at(0).name, others, said));
    day_of_ = std::move(said);
    return {200, json_type, day_};
}

std::string watch_socket(const std::string& folder) {
    return folder + "/watch.sock";
}

Result<std::string> ask_watch(const std::string& folder, const std::string& path) {
    auto answer = ask_locally(watch_socket(folder), path);
    if (answer) return answer;
    return Error{Error::Kind::usage, "no server runs on " + folder + ": " + answer.error().what,
                 "start it, or give the folder that `serve` was given: --state DIR"};
}

Result<pid_t> server_process(const std::string& folder) {
    return process_behind(watch_socket(folder));
}

}  // namespace tnr::watch
