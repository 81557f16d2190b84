// `tnr-gpu-server serve`: one thread that owns the node's GPUs, the claims on them and the control socket.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "api_client/base/result.hpp"
#include "gpu_client/protocol/lanes.hpp"
#include "gpu_server/supervisor/endpoint.hpp"
#include "gpu_server/supervisor/gpu_source.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

struct ServeOptions {
    std::string listen = "tcp://127.0.0.1:14900";
    bool plain = false;   // no keys, no encryption: on loopback only
    std::string state;    // folder; empty: the default
    std::string name;     // of the pool, for the log
    std::string store;    // etcd://…, for a pool of several nodes; empty: a file in the state folder, for this one
    std::string history;  // file for what this node believes, for tests; empty: none
    std::string node;     // this one's name in it; empty: the host's
    std::string control_address;  // tcp://HOST:PORT that clients are told by other nodes; empty: where it listens
    GpuOptions gpus;
    std::string nvml;            // libnvidia-ml.so.1 to ask for temperatures and the like; empty: none
    std::string worker_bind;     // host that workers listen on; empty: as the control socket
    std::string worker_address;  // host that clients are told for sessions; empty: as they reached us
    PortRange worker_ports;
    bool one_port = false;  // workers have none, and are reached through the control socket's
    std::chrono::milliseconds linger = default_linger;
    uint64_t host_memory_mib = 0;  // for a claim's workers, per GPU; 0: a GPU's share of what there is
    // Connections for the data of an encrypted session (gpu_client/protocol/lanes.hpp).
    size_t lanes = wire::lanes_for_cores(std::thread::hardware_concurrency());
    uint64_t image_cache_mib = default_image_cache_mib;  // 0: none
    std::string http;                                    // where to be watched: "127.0.0.1:14980"; empty: nowhere
    std::chrono::seconds stop_grace{0};                  // for programs that run, once a signal asks it to stop
};

// Returns when a signal has asked the server to end, and everything has ended. `ready` is told the address, but by a server that
// has taken over from another in this process.
using Ready = std::function<void(const std::string& address)>;
Result<> serve(const ServeOptions& options, const Ready& ready);

// Whether the folder of a server that runs can be used by one that takes its place: its key and its database can be read. Writes
// nothing.
Result<> can_take_over(const ServeOptions& options);

}  // namespace tnr::server
