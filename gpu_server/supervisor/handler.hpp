// What each control request does, and who may ask for it. Knows nothing of sockets.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "gpu_server/pool/ledger.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/claims.hpp"
#include "gpu_server/supervisor/gpus.hpp"
#include "gpu_server/supervisor/image_keeper.hpp"
#include "gpu_server/supervisor/nvml_source.hpp"
#include "gpu_server/supervisor/request.hpp"

namespace tnr::server {

// What the socket tells of a request's sender.
struct Peer {
    std::string public_key;  // proven by the handshake; empty when plain
    int connection = -1;     // descriptor, ZeroMQ's own
};

class Handler {
public:
    Handler(EventLoop& loop, Gpus& gpus, Claims& claims, Store& store, Ledger& ledger, Books& books, NvmlSource& nvml,
            ImageKeeper& images)
        : loop_(loop),
          gpus_(gpus),
          claims_(claims),
          store_(store),
          ledger_(ledger),
          books_(books),
          nvml_(nvml),
          images_(images) {}

    // Foreign bytes in, exactly one call of `answer` with text, now or later.
    void handle(const Peer& peer, const void* data, size_t size, std::function<void(std::string)> answer);

private:
    Result<Caller> identify(const Peer& peer, const Request& request);
    void dispatch(const Peer& peer, const Caller& caller, const Request& request, const Reply& reply);
    Result<nlohmann::json> types();
    nlohmann::json claims_of(const Caller& caller);
    Result<nlohmann::json> ledger_of(const Caller& caller, const Request& request);
    Result<nlohmann::json> prices(const Request& request);
    void nvml(const Caller& caller, const Request& request, const Reply& reply, EventLoop::Clock::time_point deadline);
    Result<std::vector<NvmlDevice>> nvml_devices(const Caller& caller, const Request& request);
    Result<nlohmann::json> enroll(const Caller& caller, const Request& request);
    Result<nlohmann::json> forget(const Caller& caller, const Request& request);

    EventLoop& loop_;
    Gpus& gpus_;
    Claims& claims_;
    Store& store_;
    Ledger& ledger_;
    Books& books_;
    NvmlSource& nvml_;
    ImageKeeper& images_;
    std::map<std::string, size_t> nvml_waiting_;  // by owner
};

}  // namespace tnr::server
