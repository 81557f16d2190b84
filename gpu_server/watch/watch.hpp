// The watch address: `/` a page for people, `/metrics` for Prometheus, `/healthz` for whoever restarts things, and what the
// page itself asks for: `/api/now`, `/api/day`. All of it may be read by whoever reaches the address; nothing can be changed.
//
// It always listens on a socket in the state folder, which `tnr-gpu-server status` reads, and on a TCP address if one is
// given. It serves what the supervisor published last, and from the ledger what was in the last day, so a thousand readers
// cost the supervisor no more than one.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "gpu_server/pool/ledger_report.hpp"
#include "gpu_server/watch/day.hpp"
#include "gpu_server/watch/day_book.hpp"
#include "gpu_server/watch/http_server.hpp"
#include "gpu_server/watch/pool_state.hpp"

namespace tnr::watch {

// What the pool's other nodes have said of themselves lately: parts of their own /api/now. Two are the same when they are one.
struct FellowsTold {
    std::vector<std::shared_ptr<const nlohmann::json>> said;
    std::set<std::string> silent;  // they were asked, and did not answer
    bool operator==(const FellowsTold&) const = default;
};

struct WatchOptions {
    std::string folder;    // for the socket, watch.sock
    UniqueFd http;         // a TCP socket that listens, or none
    bool loopback = true;  // where it listens
    // Whoever calls it watches them.
    std::function<FellowsTold()> fellows = {};
    // And what their ledgers have of the last day.
    std::function<std::vector<FellowDay>()> fellow_days = {};
};

class Watch {
public:
    // `state` must outlive it. Make it when signals are blocked.
    static Result<std::unique_ptr<Watch>> start(WatchOptions options, const Published& state,
                                                std::unique_ptr<server::LedgerReader> ledger);

    // The last day of this node's ledger; null: it has not been read yet. Waits for nobody. Any thread.
    DayBook::Day own_day() { return day_book_.latest(); }

private:
    Watch(const Published& state, std::unique_ptr<server::LedgerReader> ledger)
        : state_(state), day_book_(std::move(ledger)) {}
    // On the server's thread, as all below.
    HttpAnswer answer(const HttpRequest& request);
    HttpAnswer healthz(const PoolState* state) const;
    using Text = std::shared_ptr<const std::string>;
    void begin_texts(const std::shared_ptr<const PoolState>& state);
    Text now_text();
    Text metrics();
    HttpAnswer day();

    const Published& state_;
    DayBook day_book_;
    bool loopback_ = true;
    std::function<FellowsTold()> fellows_;
    std::function<std::vector<FellowDay>()> fellow_days_;
    // Made once for each state that is published and for what the fellows said until then, however many ask.
    std::shared_ptr<const PoolState> texts_of_;
    FellowsTold now_of_;
    std::vector<FellowDay> day_of_;
    Text metrics_, now_, day_;
    std::unique_ptr<HttpServer> server_;  // last: its thread uses the others
};

// The path of the socket in a state folder.
std::string watch_socket(const std::string& folder);
// What the server that runs on this folder answers on `path`; kind usage: none runs there.
Result<std::string> ask_watch(const std::string& folder, const std::string& path);
// Its process.
Result<pid_t> server_process(const std::string& folder);

}  // namespace tnr::watch
