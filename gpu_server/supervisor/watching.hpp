// Lets others watch this server: publishes a picture of it every second, for the watch address (watch/watch.hpp) and for
// clients that ask. While somebody looks, the other nodes are asked, too.
#pragma once

#include <memory>
#include <string>

#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/fellows.hpp"
#include "gpu_server/supervisor/handover.hpp"
#include "gpu_server/supervisor/picture.hpp"
#include "gpu_server/supervisor/server_keys.hpp"
#include "gpu_server/supervisor/state_folder.hpp"
#include "gpu_server/watch/watch.hpp"

namespace tnr::server {

class Watching {
public:
    // What of the server it reads beside the picture.
    struct Sources {
        Store& store;
        const ServerKeys& keys;
    };
    // `http`: "127.0.0.1:14980"; empty: only the socket in the folder. Make it after the Reaper: there will be a thread.
    // `before`: of an earlier server in this process, whose listening socket goes on where that is at the same address.
    static Result<std::unique_ptr<Watching>> start(EventLoop& loop, Painter painter, const std::string& http,
                                                   const StateFolder& folder, const Sources& sources, Handover* before);
    // May wait two seconds for other nodes. So call it while the pool's lease is still renewed.
    void hand_over(Handover& handover);
    // From now on it publishes: once there are GPUs. Before, the watch address says that the server is starting.
    void begin() { keep_publishing(); }
    // `with_day`: also the last day, to whom may see all.
    nlohmann::json told_to(const Caller& caller, bool with_day);
    // From now on it is known that this node takes no new claims.
    void node_is_ending();
    void node_reloads(const watch::Reloads& reloads);

private:
    Watching(EventLoop& loop, Painter painter, const ServerKeys& keys, const StateFolder& folder)
        : loop_(loop), painter_(std::move(painter)), keys_(keys), fellows_({}, folder.path() / "fellows.json") {}
    void tell_fellows();
    Result<UniqueFd> listen(const Endpoint& wanted);
    Result<> take_over(Handover& handover, const std::string& http);
    void publish();
    void keep_publishing();

    EventLoop& loop_;
    Painter painter_;
    const ServerKeys& keys_;
    std::string http_;  // as it was told
    Endpoint listens_at_;
    UniqueFd listener_;  // the same socket as the watch's
    watch::Published published_;
    Fellows fellows_;
    std::unique_ptr<watch::Watch> watch_;  // last: its thread reads what is published
};

}  // namespace tnr::server
