// Lets others watch this server: publishes a picture of it every second, for the watch address (watch/watch.hpp) and for
// clients that ask. While somebody looks, the other nodes are asked, too.
#pragma once

#include <memory>
#include <string>

#include "gpu_server/supervisor/fellows.hpp"
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
    static Result<std::unique_ptr<Watching>> start(EventLoop& loop, Painter painter, const std::string& http,
                                                   const StateFolder& folder, const Sources& sources);
    // From now on it publishes: once there are GPUs. Before, the watch address says that the server is starting.
    void begin() { keep_publishing(); }
    nlohmann::json told_to(const Caller& caller);
    // From now on it is known that this node takes no new claims.
    void node_is_ending();

private:
    Watching(EventLoop& loop, Painter painter, const ServerKeys& keys)
        : loop_(loop), painter_(std::move(painter)), keys_(keys) {}
    void tell_fellows();
    void publish();
    void keep_publishing();

    EventLoop& loop_;
    Painter painter_;
    const ServerKeys& keys_;
    watch::Published published_;
    Fellows fellows_;
    std::unique_ptr<watch::Watch> watch_;  // last: its thread reads what is published
};

}  // namespace tnr::server
