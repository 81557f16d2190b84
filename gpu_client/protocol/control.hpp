// Control messages: what is said to a pool's supervisor, as JSON over ZeroMQ. One request, one answer.
//
// Every request is {"op", "id", "protocol", "table", "version", …}; every answer {"id", …} or {"id", "error": {"kind",
// "what", "hint"}}. `protocol` and `table` travel with each request, so no extra round trip is spent on a handshake and
// any mismatch is noticed at the first one.
//
//   op              request                     answer
//   hello           -                           {protocol, table, version, role: "account"|"machine"|"open"}
//   types           -                           {types: [{name, total, free, memory_bytes, price: {currency, per_hour}}]};
//                                               no price where the operator has set none
//   describe        gpu, count                  {devices: [Device…]}; claims nothing
//   session         gpu, count, pid, process,   {endpoint, server_key, session, devices: [Device…]}, or {queued: {place,
//                   nonce, wait_s, place        of}}, to a client that says how long it waits
//   nvml            gpu, count                  {devices: [… as NVML tells it …], processes: […]}
//   enroll_machine  name, public_key            {}; accounts only
//   forget_machine  name                        {}; accounts only; succeeds when it is not there
//   claims          -                           {claims: [{machine, gpu, devices, since, sessions}]}
//   release         -                           {}; ends the caller's own claim
//   ledger          since, behind               {claims: [{id, machine, gpu, count, node, from, to, ended, reason, bytes_up,
//                                               bytes_down, wiped_bytes}], next}; accounts only, of the caller's own
//                                               account what was in use after `since`; a running claim may come twice
//   prices          behind                      {prices: [{gpu, since, currency, per_hour}], next}; per_hour null: none
//                                               from then on
//
// `ledger` and `prices` answer by the page: `next` is null at the end, else it has the fields to ask for the next page with.
// Times in them are milliseconds since 1970. A server that does not know an op answers with an Error of kind usage.
//
// `session` makes the machine's claim or joins it. If one of the claim's sessions already has the nonce (random, up to
// 64 characters), the answer is that session: the first answer was lost. The endpoint is tcp://HOST:PORT, where the
// host "*" stands for the one under which the client reached the pool: see worker_endpoint().
//
// Device: {name, uuid (32 hex digits), pci: {domain, bus, device}, memory_bytes, driver_version,
//          attributes: {"id": value…}, range: {address, bytes} (session only)}; see device_description.hpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "api_client/base/result.hpp"
#include "gpu_client/protocol/keys.hpp"

namespace tnr::control {

inline constexpr std::chrono::milliseconds default_timeout{5000};

// The longest wait there is, and no end to it. An older server ignores it, and refuses at once.
inline constexpr int64_t wait_s_max = int64_t{30} * 24 * 3600;

// "Out of GPUs" is an Error::Kind::remote whose `what` says so; an Error about a mismatch of versions names both.
class Client {
public:
    // Only makes the socket; an unreachable pool shows at the first request. `endpoint`: "tcp://host:port".
    static Result<std::unique_ptr<Client>> open(const std::string& endpoint, const wire::ClientKeys& keys);
    virtual ~Client() = default;

    // `request` needs "op" and its fields; the rest is added. An error answer becomes an Error. A pool that cannot be
    // reached at all is given up after default_timeout, however long `timeout` is. If the connection breaks, the
    // request is repeated over a new one. One thread at a time.
    virtual Result<nlohmann::json> request(nlohmann::json request,
                                           std::chrono::milliseconds timeout = default_timeout) = 0;
    // After fork(): forget the socket without touching it (it belongs to the parent).
    virtual void abandon() = 0;
};

// Parses foreign bytes: an object within control_bytes_max and a nesting depth of 16, else an Error. Never throws.
Result<nlohmann::json> parse(const void* data, size_t size);
// The address of a session's worker, for a client that reached the pool at `pool`: the host "*" in `told` is replaced
// by the pool's. Other text is returned unchanged.
std::string worker_endpoint(const std::string& told, const std::string& pool);
// {"error": …} as an answer carries it, and back.
nlohmann::json to_json(const Error& error);
Error error_from_json(const nlohmann::json& error);

// The hash of cuda.calls, 16 hex digits: two builds with the same one know the same calls.
std::string table_hash();
std::string version();

}  // namespace tnr::control
