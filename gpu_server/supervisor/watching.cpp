// See watching.hpp.
#include "gpu_server/supervisor/watching.hpp"

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

Result<std::unique_ptr<Watching>> Watching::start(EventLoop& loop, Painter painter, const std::string& http,
                                                  const StateFolder& folder, const Sources& sources) {
    auto ledger = open_sqlite_ledger_reader(folder.database(), sources.store);
    if (!ledger) return ledger.error();
    std::unique_ptr<Watching> made(new Watching(loop, std::move(painter), sources.keys));
    watch::WatchOptions options;
    std::string address;
    options.folder = folder.path();
    options.fellows = [fellows = &made->fellows_] { return fellows->told(); };
    if (!http.empty()) {
        auto wanted = http_endpoint(http);
        if (!wanted) return wanted.error();
        Endpoint where;
        auto listener = listen_on(wanted->host, wanted->port, http_backlog, where);
        if (!listener) {
            Error error = listener.error();
            error.hint = "is something else listening there? try another port: --http 127.0.0.1:0";
            return error;
        }
        options.http = std::move(*listener);
        options.loopback = wanted->loopback();
        address = "http://" + where.text().substr(std::string_view("tcp://").size()) + "/";
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

nlohmann::json Watching::told_to(const Caller& caller) {
    return painter_.told_to(caller);
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

}  // namespace tnr::server
