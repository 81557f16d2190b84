// See watching.hpp.
#include "gpu_server/supervisor/watching.hpp"

#include <fcntl.h>

#include <nlohmann/json.hpp>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/watch/limits.hpp"

namespace tnr::server {

static constexpr int http_backlog = 64;

static Result<Endpoint> http_endpoint(std::string text) {
    constexpr std::string_view scheme = "http://";
    if (text.starts_with(scheme)) text = text.substr(scheme.size());
    while (text.ends_with('/')) text.pop_back();
    auto endpoint = parse_endpoint("tcp://" + text);
    if (endpoint) return endpoint;
    return Error{Error::Kind::usage, "'" + text + "' is no address for --http", "it looks like 127.0.0.1:14980"};
}

Result<UniqueFd> Watching::listen(const Endpoint& wanted) {
    if (!listener_) {
        auto listener = listen_on(wanted.host, wanted.port, http_backlog, listens_at_);
        if (!listener) return Error{listener.error().kind, "--http: " + listener.error().what, listener.error().hint};
        listener_ = std::move(*listener);
    }
    return UniqueFd(fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0));
}

void Watching::hand_over(Handover& handover) {
    fellows_.stop();
    handover.section("watch") = {{"http", http_},
                                 {"host", listens_at_.host},
                                 {"port", listens_at_.port},
                                 {"listener", handover.keep(std::move(listener_))}};
}

Result<> Watching::take_over(Handover& handover, const std::string& http) {
    return reading("watch address", [&]() -> Result<> {
        auto& section = handover.at("watch");
        if (section.at("http").get<std::string>() != http) return Ok{};
        listener_ = handover.take(section.at("listener"));
        listens_at_ = {section.at("host").get<std::string>(), section.at("port").get<int>()};
        return Ok{};
    });
}

Result<std::unique_ptr<Watching>> Watching::start(EventLoop& loop, Painter painter, const std::string& http,
                                                  const StateFolder& folder, const Sources& sources, Handover* before) {
    auto ledger = open_sqlite_ledger_reader(folder.database(), sources.store);
    if (!ledger) return ledger.error();
    std::unique_ptr<Watching> made(new Watching(loop, std::move(painter), sources.keys, folder));
    watch::WatchOptions options;
    std::string address;
    options.folder = folder.path();
    options.fellows = [fellows = &made->fellows_] { return fellows->told(); };
    options.fellow_days = [fellows = &made->fellows_] { return fellows->days(); };
    if (!http.empty()) {
        auto wanted = http_endpoint(http);
        if (!wanted) return wanted.error();
        if (before)
            if (auto taken = made->take_over(*before, http); !taken) return taken.error();
        auto listener = made->listen(*wanted);
        if (!listener) return listener.error();
        options.http = std::move(*listener);
        options.loopback = wanted->loopback();
        made->http_ = http;
        address = "http://" + made->listens_at_.text().substr(std::string_view("tcp://").size()) + "/";
    }
    const bool for_everybody = !options.loopback;
    auto watch = watch::Watch::start(std::move(options), made->published_, std::move(*ledger));
    if (!watch) return watch.error();
    made->watch_ = std::move(*watch);
    if (!address.empty()) log(LogLevel::info, "watch it at " + address);
    if (for_everybody)
        log(LogLevel::warning, "whoever reaches " + address + " sees who uses which GPU: it has no password");
    return made;
}

nlohmann::json Watching::told_to(const Caller& caller, bool with_day) {
    auto told = painter_.told_to(caller);
    if (!with_day || !sees_all(caller)) return told;
    auto day = watch_->own_day();
    told["day"] = day ? watch::to_json(*day) : nlohmann::json();
    return told;
}

void Watching::publish() {
    tell_fellows();
    published_.publish(painter_.picture());
}

void Watching::tell_fellows() {
    std::vector<Fellows::Node> nodes;
    for (auto& node : painter_.members.others()) nodes.push_back({node.name, node.address, node.server_key});
    fellows_.are(std::move(nodes), keys_.pair());
}

void Watching::keep_publishing() {
    publish();
    loop_.after(watch::published_every, [this] { keep_publishing(); });
}

void Watching::node_is_ending() {
    painter_.node.ending = true;
    publish();
}

void Watching::node_reloads(const watch::Reloads& reloads) {
    painter_.node.reloads = reloads;
    publish();
}

}  // namespace tnr::server
