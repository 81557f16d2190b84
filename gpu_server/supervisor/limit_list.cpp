// See limit_list.hpp. Every number is named where it is used: limits.hpp, worker/limits.hpp and protocol/limits.hpp.
#include "gpu_server/supervisor/limit_list.hpp"

#include <cmath>

#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/pool/audit.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/print.hpp"
#include "gpu_server/worker/limits.hpp"

namespace tnr::server {

static std::string number(size_t count) {
    return std::to_string(count);
}

static std::string rate(double per_second, double burst) {
    return std::to_string(std::lround(per_second)) + " a second, " + std::to_string(std::lround(burst)) + " at once";
}

std::vector<watch::LimitState> limit_list(uint64_t host_bytes_per_gpu) {
    const std::string refused = "an error that says so", cut = "closed at once";
    return {
        {"connections that have proven no key", "an address", number(unproven_per_source_max), cut},
        {"connections that prove no key", "an address", rate(unproven_per_second_max, unproven_burst), cut},
        {"connections that have not said whom they are for", "an address", number(greetings_waiting_per_source_max),
         "the oldest goes"},
        {"connections", "a machine", number(connections_per_key_max), refused},
        {"connections", "a user", number(connections_per_account_max), refused},
        {"a request", "a machine", exact_bytes(request_bytes_max), refused},
        {"requests", "a user", rate(requests_per_second_max, requests_burst), refused},
        {"requests in flight", "a machine",
         number(requests_per_peer_max) + ", " + exact_bytes(request_bytes_per_peer_max), refused},
        {"requests in flight", "a user",
         number(requests_per_account_max) + ", " + exact_bytes(request_bytes_per_account_max), refused},
        {"requests that wait for a GPU", "a machine", number(waiting_requests_per_owner_max), refused},
        {"requests that wait for a GPU", "a user", number(waiting_requests_per_account_max), refused},
        {"machines", "a user", std::to_string(machines_per_account_max), refused},
        {"machines enrolled and forgotten", "a user", rate(changes_per_second_max, changes_burst), refused},
        {"GPUs", "a user", "as `user limit --gpus` says", refused},
        {"GPUs in one claim", "a machine", std::to_string(gpus_per_claim_max), refused},
        {"sessions", "a machine", number(sessions_per_claim_max), refused},
        {"sessions", "a user", number(sessions_per_user_max), refused},
        {"connections to its worker that have proven no key", "a session", number(worker::strangers_max),
         "the oldest goes"},
        {"data in flight", "a session", exact_bytes(wire::window_bytes) + " each way", "the sender waits"},
        {"device memory", "a session", "what its GPUs have, shared with the claim's others",
         "out of memory, as CUDA says"},
        {"host memory", "a machine", exact_bytes(host_bytes_per_gpu) + " per GPU", "its largest session ends"},
        {"handles of a kind", "a session", number(worker::handles_max), "an error of CUDA's"},
        {"multicast objects", "a session", number(worker::multicast_objects_max), "an error of CUDA's"},
        {"parts of memory bound to multicast objects", "a session", number(worker::multicast_bindings_max),
         "an error of CUDA's"},
        {"calls that wait for a multicast object's devices", "a session", number(worker::multicast_waits_max),
         "an error of CUDA's"},
        {"threads and processes", "a session", number(worker::threads_max), "an error of CUDA's"},
        {"files and sockets", "a session", number(worker::files_max), "an error of CUDA's"},
        {"things lent between its processes", "a machine",
         number(things_of_claim_max) + ", of all " + number(things_max) + " its GPUs' part", "an error of CUDA's"},
        {"what its workers tell the server", "a user", rate(worker_messages_per_second_max, worker_messages_burst),
         "they wait"},
        {"code kept on disk", "a user", exact_bytes(tenant_image_bytes_max), "what was used longest ago goes"},
        {"lines in the audit log", "a user or address", number(audit_lines_per_peer_max) + " a minute", "counted"},
    };
}

}  // namespace tnr::server
