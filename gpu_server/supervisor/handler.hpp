// What each control request does, and who may ask for it. Knows nothing of sockets.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "gpu_server/pool/audit.hpp"
#include "gpu_server/pool/ledger.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/asker.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/errands.hpp"
#include "gpu_server/supervisor/gpus.hpp"
#include "gpu_server/supervisor/image_keeper.hpp"
#include "gpu_server/supervisor/membership.hpp"
#include "gpu_server/supervisor/node_keys.hpp"
#include "gpu_server/supervisor/nvml_source.hpp"
#include "gpu_server/supervisor/request.hpp"
#include "gpu_server/supervisor/server_keys.hpp"
#include "gpu_server/watch/histogram.hpp"

namespace tnr::server {

// What the socket tells of a request's sender.
struct Peer {
    std::string public_key;  // proven by the handshake; empty when plain
    PeerConnection connection = {};
    std::string address = {};
    bool crowded = false;  // its connection is one too many: it is told so, whatever it asks
};

// What handlers of requests about rights need: who knows whom, where it is written down, and the server's own key.
struct Rights {
    Store& store;
    AuditLog& audit;
    ServerKeys& keys;
    const NodeKeys& nodes;
};

// Since the start.
struct RequestTally {
    std::map<std::string, uint64_t> requests;  // by operation
    std::map<std::string, uint64_t> refusals;  // by kind of error
    watch::Histogram claim_seconds;            // of `session` requests that got a session
};

class Handler {
public:
    Handler(EventLoop& loop, Gpus& gpus, Claims& claims, const Rights& rights, Ledger& ledger, Books& books,
            NvmlSource& nvml, ImageKeeper& images, Membership& pool)
        : loop_(loop),
          gpus_(gpus),
          claims_(claims),
          store_(rights.store),
          audit_(rights.audit),
          keys_(rights.keys),
          nodes_(rights.nodes),
          ledger_(ledger),
          books_(books),
          nvml_(nvml),
          images_(images),
          pool_(pool),
          errands_(loop) {}

    // Foreign bytes in, exactly one call of `answer` with text, now or later.
    void handle(const Peer& peer, const void* data, size_t size, std::function<void(std::string)> answer);
    // For `answer`: what it has cost beside its length, in bytes of one (Turns::answered()).
    size_t take_work() { return std::exchange(work_, 0); }

    // No change of the accounts is under way: they are not asked for again when their answer is lost.
    bool at_rest() const { return errands_.none(); }

    const RequestTally& tally() const { return tally_; }
    // What a caller is told of the pool as it is now (picture.hpp).
    void on_pool(std::function<nlohmann::json(const Caller&, bool with_day)> told) { pool_told_ = std::move(told); }

private:
    Reply counted(const Request& request, Reply reply);
    Result<Caller> identify(const Peer& peer, const Request& request);
    Question about_others(const Caller& caller, const Request& request);
    void look_then_dispatch(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply);
    void dispatch(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply);
    nlohmann::json hello(const Caller& caller) const;
    Result<nlohmann::json> types(const Caller& caller);
    nlohmann::json claims_of(const Caller& caller, const Request& request);
    nlohmann::json queue_of(const Caller& caller, const Request& request);
    void note_refusal(const Peer& peer, const std::string& who, const Request& request, const Error& error);
    void note_change(const Peer& peer, const Caller& caller, const std::string& what);
    Result<nlohmann::json> ledger_of(const Caller& caller, const Request& request);
    Result<nlohmann::json> prices(const Request& request);
    void nvml(const Caller& caller, const Request& request, const Reply& reply, EventLoop::Clock::time_point deadline);
    Result<std::vector<NvmlDevice>> nvml_devices(const Caller& caller, const Request& request);
    void enroll(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply);
    void redeem(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply);
    nlohmann::json release(const Caller& caller, const Request& request);
    nlohmann::json nodes();
    void forget(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply);
    void forgotten(const Caller& caller, const std::string& machine);

    EventLoop& loop_;
    Gpus& gpus_;
    Claims& claims_;
    Store& store_;
    AuditLog& audit_;
    ServerKeys& keys_;
    const NodeKeys& nodes_;
    Ledger& ledger_;
    size_t work_ = 0;
    Books& books_;
    NvmlSource& nvml_;
    ImageKeeper& images_;
    Membership& pool_;
    Errands errands_;
    std::map<std::string, size_t> nvml_waiting_, looking_;  // by owner
    RequestTally tally_;
    std::function<nlohmann::json(const Caller&, bool with_day)> pool_told_;
};

}  // namespace tnr::server
