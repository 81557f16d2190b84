// Control messages: what is said to a pool's supervisor, as JSON over ZeroMQ. One request, one answer.
//
// A pool may have several nodes. Any of them answers `describe`, `session`, `nvml` and `release` with {"redirect": {node,
// address, server_key}} when another is the one to ask; `hops` says how many have done so, and without it none does.
//
// Every request is {"op", "id", "protocol", "table", "version", …}; every answer {"id", …} or {"id", "error": {"kind",
// "what", "hint"}}. `protocol` and `table` travel with each request, so no extra round trip is spent on a handshake and
// any mismatch is noticed at the first one.
//
//   op              request                     answer
//   hello           -                           {protocol, table, version, role: "account"|"machine"|"token"|"open"|"node",
//                                               operator: whether it may ask for everyone's, time: it is there, in
//                                               seconds since 1970, pool: which it is, the same at each
//                                               of its nodes; random, no secret, and missing while unknown}
//   types           -                           {types: [{name, total, free, together, memory_bytes, price: {currency,
//                                               per_hour}}]}; together: of the node that has most, as a claim's GPUs are
//                                               of one; no price where the operator has set none
//   describe        gpu, count                  {devices: [Device…]}; claims nothing
//   session         gpu, count, pid, process,   {endpoint, server_key, session, devices: [Device…]}, and door where the
//                                               server has one port; or {queued: {place,
//                   nonce, wait_s, place, doors of}}, to a client that says how long it waits; and
//                                               above: how many have a higher priority, if any
//   nvml            gpu, count                  {devices: [… as NVML tells it …], processes: […]}
//   enroll_with_token  public_key               {account}; tokens only, once: the account's key from now on
//   enroll_machine  name, public_key            {}; accounts only
//   forget_machine  name                        {}; accounts only; succeeds when it is not there
//   claims          everyone                    {claims: [{machine, gpu, devices, since, sessions, node}]}, of all nodes
//   queue           everyone                    {queue: [{machine, gpu, count, place, of, priority, waited_s}]}
//   nodes           -                           {nodes: [{name, address, server_key, version, state: "ready"|"draining",
//                                               gpus: {type: {total, free}}, claims}], asked: name, gone: [name]}; gone:
//                                               were there since that server's start
//   release         -                           {}; ends the caller's own claim
//   ledger          since, behind, everyone,    {claims: [{id, machine, gpu, count, node, from, to, ended, reason, bytes_up,
//                   sums, borders               bytes_down, busy_ms, wiped_bytes, wipe_checked_bytes, wipe_ms}], next};
//                                               accounts only, of the caller's own
//                                               account what was in use after `since`; a running claim may come twice.
//                                               With `sums` true, each of claims that are alike between two borders (times
//                                               that are named, hours, changes of the price) may stand for several, of
//                                               which no one is told apart: {lines: how many, held_ms: their times together,
//                                               from, to: of all of them, …}; any_run_of_host() is then the machine
//   pool            day                         {now, nodes, other_nodes, gpus, claims, queue, queue_length}: what there is
//                                               now, of the node that is asked (README.md of gpu_server/watch/); of others'
//                                               claims only which GPUs they hold; accounts only. With `day` true, and for
//                                               operators and other nodes: {day}, the last day of its ledger, or null
//                                               while that is being read
//   prices          behind                      {prices: [{gpu, since, currency, per_hour}], next}; per_hour null: none
//                                               from then on
//
// `everyone`: true asks for all users', with the `account` of each; for operators only.
// `queue`, `ledger` and `pool` tell of the node that is asked: for all, ask each that `nodes` names.
// A request may name the pool's public key that its sender knows, as `pool_key`: where the pool has a newer one (its key is
// being rotated), the answer has it, under the same name.
// `ledger` and `prices` answer by the page: `next` is null at the end, else it has the fields to ask for the next page with.
// Times in them are milliseconds since 1970. A server that does not know an op answers with an Error of kind usage.
//
// `session` makes the machine's claim or joins it. If one of the claim's sessions already has the nonce (random, up to
// 64 characters), the answer is that session: the first answer was lost. The endpoint is tcp://HOST:PORT, where the
// host "*" stands for the one under which the client reached the pool: see worker_endpoint(). With a `door` the endpoint is
// the address at which the client reached the pool, and the connection begins with that number (greeting.hpp): only for
// clients that say `doors`: true. With `asks_port` the worker understands op_port.
//
// Device: {name, uuid (32 hex digits), pci: {domain, bus, device}, memory_bytes, driver_version,
//          attributes: {"id": value…}, range: {address, bytes} (session only)}; see device_description.hpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "api_client/base/result.hpp"
#include "gpu_client/protocol/keys.hpp"

namespace tnr::control {

inline constexpr std::chrono::milliseconds default_timeout{5000};
// For what is asked of GPUs: the pool answers once it has what it promises, and says so itself where that takes it 10 s. A worker
// may have to initialise a driver first, and a node to find its pool's other nodes again.
inline constexpr std::chrono::milliseconds gpu_timeout{15'000};

// The longest wait there is, and no end to it. An older server ignores it, and refuses at once.
inline constexpr int64_t wait_s_max = int64_t{30} * 24 * 3600;

// GPUs of one claim, which are of one type: the largest nodes sold have as many.
inline constexpr int gpus_per_claim_max = 16;
// Times that a request for sums of the ledger may name.
inline constexpr size_t ledger_borders_max = 64;
// What a machine or a `tnr run` is called at the pool: letters, digits, '-', '_' and '.'. A host name's label has 63.
inline constexpr size_t name_bytes_max = 64;

// What a client does with an address that refuses connections. Programs try again: its server may be restarting. Who sits at a
// terminal would rather know.
enum class Refused { try_again, say_so };

// "Out of GPUs" is an Error::Kind::remote whose `what` says so; an Error about a mismatch of versions names both.
class Client {
public:
    // Only makes the socket; an unreachable pool shows at the first request. `endpoint`: "tcp://host:port".
    static Result<std::unique_ptr<Client>> open(const std::string& endpoint, const wire::ClientKeys& keys,
                                                Refused refused = Refused::try_again);
    virtual ~Client() = default;

    // `request` needs "op" and its fields; the rest is added. An error answer becomes an Error. A pool that cannot be
    // reached at all is given up after default_timeout (or wait_for_connection()), however long `timeout` is; one that
    // refuses our key, which it may not have heard of yet, after 3 s (Kind auth). If the connection breaks, the request is
    // repeated. One thread at a time.
    //
    // Where another node of the pool is the one to ask, that is asked, and so are later requests, until it does not answer:
    // then the first one is asked again.
    virtual Result<nlohmann::json> request(nlohmann::json request,
                                           std::chrono::milliseconds timeout = default_timeout) = 0;
    // From now on an address that says nothing is given up after that long, or once `enough` says so, which is asked a few
    // times a second, by whichever thread makes the request.
    virtual void wait_for_connection(std::chrono::milliseconds at_most, std::function<bool()> enough = {}) = 0;
    // The pool's public key where the last answers told of a newer one than `keys` had; later connections use it already.
    virtual std::optional<std::string> newer_pool_key() const = 0;
    // Of the node that answered last.
    virtual const std::string& address() const = 0;
    // After fork(): forget the socket without touching it (it belongs to the parent).
    virtual void abandon() = 0;
};

// Parses foreign bytes: an object within control_bytes_max and a nesting depth of 16, else an Error. Never throws.
Result<nlohmann::json> parse(const void* data, size_t size);
// The address of a session's worker, for a client that reached the pool at `pool`: the host "*" in `told` is replaced
// by the pool's. Other text is returned unchanged.
std::string worker_endpoint(const std::string& told, const std::string& pool);
// HOST of "run-HOST-PROCESS", as a program of `tnr run` is called at the pool; empty for other names.
std::string host_of_run(const std::string& machine);
// "run-HOST-0" for all programs of that host; other names are returned unchanged.
std::string any_run_of_host(const std::string& machine);
// {"error": …} as an answer carries it, and back.
nlohmann::json to_json(const Error& error);
Error error_from_json(const nlohmann::json& error);

// The hash of cuda.calls, 16 hex digits: two builds with the same one know the same calls.
std::string table_hash();
std::string version();

}  // namespace tnr::control
