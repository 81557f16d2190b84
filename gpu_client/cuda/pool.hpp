// What we ask of the pool's supervisor: which GPUs there are, and a session with a worker.
#pragma once

#include <vector>

#include "api_client/base/result.hpp"
#include "gpu_client/protocol/device_description.hpp"
#include "gpu_client/protocol/keys.hpp"

namespace tnr::cuda {

struct SessionOffer {
    std::string endpoint;
    std::string session;
    wire::ClientKeys keys;   // for the worker
    size_t lanes = 0;        // as many as both ends want
    bool asks_port = false;  // the worker wants to know from which port we come
    std::vector<DeviceDescription> devices;
};

// Each waits at most 15 s (control::gpu_timeout), for a session also as long as the configuration says, if all GPUs are in use.
// Reads the configuration at first use.
Result<std::vector<DeviceDescription>> ask_for_devices();
Result<SessionOffer> ask_for_session();

}  // namespace tnr::cuda
