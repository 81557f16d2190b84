// See limit_list.hpp. Every number is named where it is used: limits.hpp, worker/limits.hpp, protocol/limits.hpp and
// protocol/control.hpp.
#include "gpu_server/supervisor/limit_list.hpp"

#include <cmath>

#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/pool/audit.hpp"
#include "gpu_server/pool/store.hpp"
#include "gpu_server/supervisor/limits.hpp"
#include "gpu_server/supervisor/print.hpp"
#include "gpu_server/watch/limits.hpp"
#include "gpu_server/worker/limits.hpp"

namespace tnr::server {

static std::string number(size_t count) {
    return std::to_string(count);
}

static std::string rate(double per_second, double burst) {
    const auto often = per_second < 1 ? "one in " + std::to_string(std::lround(1 / per_second)) + " seconds"
                                      : std::to_string(std::lround(per_second)) + " a second";
    return often + ", " + std::to_string(std::lround(burst)) + " at once";
}

static std::string time(milliseconds time) {
    return std::to_string(std::chrono::ceil<std::chrono::seconds>(time).count()) + " s";
}

std::vector<watch::LimitState> limit_list(uint64_t host_bytes_per_gpu) {
    const std::string refused = "an error that says so", cut = "closed at once";
    const std::string no_claim =
        "no new claim for " + time(unconnected_pause_min) + ", then longer, up to " + time(unconnected_pause_max);
    return {
        {"connections that have proven no key", "an address", number(unproven_per_source_max), "the oldest goes"},
        {"connections that prove no key", "an address", rate(unproven_per_second_max, unproven_burst), cut},
        {"connections that prove no key", "an address of somebody who has proven one",
         rate(unproven_per_second_known_max, unproven_burst), cut},
        {"connections that have not said whom they are for", "an address", number(greetings_waiting_per_source_max),
         "the oldest goes"},
        {"connections that have not said whom they are for", "all addresses", number(greetings_waiting_max),
         "the oldest goes"},
        {"a connection's first words and its handshake", "a connection",
         time(greeting_timeout) + ", " + time(handshake_timeout), cut},
        {"connections", "a machine", number(connections_per_key_max), refused},
        {"connections", "a user", number(connections_per_account_max), refused},
        {"connections beyond those, to be told so", "a machine or user", number(connections_told_max), cut},
        {"a request", "a machine", exact_bytes(request_bytes_max), refused},
        {"a request", "a machine", exact_bytes(request_answerable_bytes) + ", " + number(request_parts_max) + " parts",
         cut},
        {"requests that were not read yet, answers that were not", "a connection",
         number(requests_per_connection_max) + ", " + number(answers_per_connection_max), "they wait; they are lost"},
        {"ZeroMQ's own commands", "a connection",
         std::to_string(commands_per_heartbeat_max) + " in " + std::to_string(wire::heartbeat_interval.count()) + " ms",
         cut},
        {"time without reading answers", "a connection", time(unread_timeout), cut},
        {"requests", "a user", rate(requests_per_second_max, requests_burst), refused},
        {"answers", "a user",
         rate(requests_per_second_max, requests_burst) + ", of " + number(answer_bytes_per_request) + " bytes",
         "the next request waits"},
        {"refusals of what is beyond a limit", "a machine",
         number(static_cast<size_t>(refusals_per_second_max)) + " a second", "dropped"},
        {"requests that are dropped", "a user", rate(dropped_per_second_max, dropped_burst), "its connection is cut"},
        {"names of a machine, a process, a GPU; a nonce", "a request",
         number(control::name_bytes_max) + ", " + number(process_name_bytes_max) + ", " + number(gpu_name_bytes_max) +
             "; " + number(nonce_bytes_max) + " bytes",
         refused},
        {"requests in flight", "a machine",
         number(requests_per_peer_max) + ", " + exact_bytes(request_bytes_per_peer_max), refused},
        {"requests in flight", "a user",
         number(requests_per_account_max) + ", " + exact_bytes(request_bytes_per_account_max), refused},
        {"requests that wait for a GPU", "a machine", number(waiting_requests_per_owner_max), refused},
        {"requests that wait for a GPU", "a user", number(waiting_requests_per_account_max), refused},
        {"requests that wait for a GPU", "all users", number(waiting_requests_max), "who has most gives up one"},
        {"a place in the queue without its client", "a machine", time(place_kept_for), "the place is gone"},
        {"requests that wait for other nodes' answers", "a machine", number(looks_per_owner_max),
         "what is known is the answer"},
        {"other nodes that send a request on", "a request", std::to_string(hops_max), "it stays at the last"},
        {"GPUs at other nodes that it was sent to", "a user", std::to_string(sent_per_user_max), "not remembered"},
        {"machines", "a user", std::to_string(machines_per_account_max), refused},
        {"machines enrolled and forgotten", "a user", rate(changes_per_second_max, changes_burst), refused},
        {"changes of the accounts that wait for the store", "a user", number(errands_per_user_max), refused},
        {"changes of the accounts that wait for the store", "all users", number(errands_max), refused},
        {"GPUs", "a user", "as `user limit --gpus` says", refused},
        {"GPUs in one claim", "a machine", std::to_string(control::gpus_per_claim_max), refused},
        {"sessions", "a machine", number(sessions_per_claim_max), refused},
        {"sessions", "a user", number(sessions_per_user_max), refused},
        {"sessions begun", "a user", rate(sessions_begun_per_second_max, sessions_begun_burst),
         "they wait; after " + time(worker_start_timeout) + ", unless they wait for GPUs anyway, " + refused},
        {"sessions in a row that nobody connects to", "a machine", std::to_string(unconnected_sessions_max), no_claim},
        {"sessions in a row that nobody connects to", "a user", std::to_string(unconnected_sessions_per_user_max),
         no_claim},
        {"a GPU described to a program that does not use it", "a machine", time(described_for), "others may get it"},
        {"connections to its worker that have proven no key", "a session", number(worker::strangers_max),
         "the oldest goes"},
        {"connections for its copies", "a session", number(wire::lanes_max), "cut like a stranger's"},
        {"a record; a batch of them", "a session",
         exact_bytes(wire::record_bytes_max) + "; " + exact_bytes(wire::batch_bytes_max) + " and " +
             number(wire::batch_frames_max) + " pieces, of " + exact_bytes(wire::piece_bytes_max) +
             " where they are data",
         "the session ends"},
        {"batches that are read before their turn", "a session",
         number(wire::early_batches_max) + "; over several connections " + number(wire::overtaking_batches_max) + ", " +
             exact_bytes(wire::overtaking_bytes_max),
         "they wait; the session ends"},
        {"code that is sent and not loaded", "a session",
         number(wire::incoming_images_max) + " images, " + exact_bytes(wire::incoming_images_bytes_max) + ", " +
             exact_bytes(wire::image_bytes_max) + " each",
         "an error of CUDA's"},
        {"data in flight", "a session", exact_bytes(wire::window_bytes) + " each way", "the sender waits"},
        {"device memory", "a machine",
         "of each of its GPUs as `user limit --device-memory` says; its sessions share it",
         "out of memory, as CUDA says"},
        {"variables of the code that it has loaded", "a session", "its device memory, for each context",
         "out of memory, as CUDA says"},
        {"host memory", "a machine", exact_bytes(host_bytes_per_gpu) + " per GPU", "its largest session ends"},
        {"wishes for memory that a leaving session holds", "a machine",
         number(held_wishes_max) + ", " + time(wish_held_for), "out of memory, as CUDA says"},
        {"handles of a kind", "a session", number(worker::handles_max), "an error of CUDA's"},
        {"contexts, beside the primary ones", "a session", number(wire::contexts_max), "out of memory, as CUDA says"},
        {"runs of a sparse array's tiles", "an array", number(worker::tile_runs_max), "out of memory, as CUDA says"},
        {"links that are not complete", "a session", number(worker::links_max), "an error of CUDA's"},
        {"multicast objects", "a session", number(worker::multicast_objects_max), "an error of CUDA's"},
        {"parts of memory bound to multicast objects", "a session", number(worker::multicast_bindings_max),
         "an error of CUDA's"},
        {"calls that wait for a multicast object's devices", "a session", number(worker::multicast_waits_max),
         "an error of CUDA's"},
        {"device resources; descriptions of them", "a session",
         number(worker::device_resources_max) + "; " + number(worker::resource_descriptions_max), "an error of CUDA's"},
        {"threads and processes", "a session", number(worker::threads_max), "an error of CUDA's"},
        {"threads and processes", "a machine",
         number(threads_per_claimed_gpu_max) + " per GPU, or " + number(threads_per_session_min) + " a session",
         "an error of CUDA's"},
        {"files and sockets", "a session", number(worker::files_max), "an error of CUDA's"},
        {"things lent between its processes", "a machine",
         number(things_of_claim_max) + ", of all " + number(things_max) + " its GPUs' part", "an error of CUDA's"},
        {"what its workers tell the server", "a user", rate(worker_messages_per_second_max, worker_messages_burst),
         "they wait"},
        {"a message of a worker to the server", "a session", exact_bytes(serving_worker_message_bytes_max),
         "the session ends"},
        {"lines of a worker's output in the log", "a session",
         exact_bytes(foreign_log_bytes_max) + " in " + time(foreign_log_window) + ", " +
             exact_bytes(foreign_line_bytes_max) + " a line",
         "counted"},
        {"lines in the log about coming and going in the queue", "a user",
         rate(queue_lines_per_second_max, queue_lines_burst), "left out"},
        {"lines in the log about its images", "a user", rate(image_lines_per_second_max, image_lines_burst),
         "left out"},
        {"code kept on disk", "a user",
         exact_bytes(tenant_image_bytes_max) + ", " + number(tenant_images_max) + " images",
         "what was used longest ago goes"},
        {"code on its way to the disk", "a user", exact_bytes(arriving_image_bytes_max / 2),
         "it is sent again next time"},
        {"lines in the audit log", "a user or address", number(audit_lines_per_peer_max) + " a minute", "counted"},
        {"connections to the watch address", "all addresses", number(watch::connections_max), "the oldest goes"},
        {"a request there, and the time for it; the time to read the answer", "a connection",
         exact_bytes(watch::request_bytes_max) + ", " + time(watch::request_within) + "; " +
             time(watch::answer_read_within),
         cut},
    };
}

}  // namespace tnr::server
