// What there is at one moment: nodes, GPUs and who holds them, the queue, and what was counted since the server started.
// The supervisor fills it in (supervisor/picture.hpp) and publishes it; everybody else only reads it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "gpu_server/watch/histogram.hpp"

namespace tnr::watch {

// What somebody may have at most, in words.
struct LimitState {
    std::string what;    // "connections"
    std::string of;      // whose: "a user", "a machine", "a session", "an address"
    std::string most;    // "256", "1 MiB", "1000 a second"
    std::string beyond;  // what happens then
};

// Whether a newer server has taken this one's place while programs went on (supervisor/replacing.hpp).
struct Reloads {
    uint64_t done = 0, failed = 0;  // since the node began to serve
    std::string why_failed = {};    // the last time
};

struct NodeState {
    std::string name, version, address;
    int64_t since_ms = 0;   // this server's start; milliseconds since 1970, as all that end in _ms and are no durations
    bool ending = false;    // takes no new claims
    bool draining = false;  // likewise: the operator has said so
    std::vector<LimitState> limits = {};
    Reloads reloads = {};
};

// Another node of the pool: as much as is known of it without asking it.
struct OtherNode {
    std::string name, version, address;
    bool draining = false;
    std::vector<std::string> types = {};  // of its GPUs
};

struct GpuState {
    std::string node;
    int index = 0;
    std::string type, name, uuid;
    std::string state;  // free, claimed, kept, wiping, broken
    uint64_t memory_bytes = 0, granted_bytes = 0;
    int64_t claim = 0;  // 0: none
};

struct SessionState {
    int pid = 0;  // on the client's machine
    std::string process;
    bool connected = false;
};

struct ClaimState {
    int64_t id = 0;
    std::string node, user, account, machine, gpu;
    std::vector<int> gpus;  // of that node
    int64_t since_ms = 0, lasted_ms = 0, busy_ms = 0;
    int64_t bytes_up = 0, bytes_down = 0;
    bool ending = false;
    std::vector<SessionState> sessions = {};
};

struct WaitingState {
    std::string user, account, machine, gpu;
    int count = 1, place = 0, of = 0;
    int64_t waited_ms = 0;
};

// Since the server's start.
struct Totals {
    std::map<std::string, uint64_t> requests;  // by operation
    std::map<std::string, uint64_t> refusals;  // by kind of error
    uint64_t claims = 0, sessions = 0;
    uint64_t wipes = 0, wipes_failed = 0;
    double wiped_bytes = 0, wipe_checked_bytes = 0;
    double bytes_up = 0, bytes_down = 0;  // of claims, to GPUs and back
    double held_s = 0, busy_s = 0;        // GPU-seconds
    Histogram claim_s;                    // from a program's request to its GPU
    Histogram queue_s;                    // that somebody waited in the queue
    Histogram wipe_s;
};

struct PoolState {
    int64_t now_ms = 0;
    std::string name;              // the pool's; may be empty
    bool open = false;             // without keys
    std::vector<NodeState> nodes;  // that the rest tells of
    std::vector<OtherNode> other_nodes;
    std::vector<GpuState> gpus;
    std::vector<ClaimState> claims;
    std::vector<WaitingState> queue;
    Totals totals;
};

nlohmann::json to_json(const PoolState& state);
// What somebody else than the operator sees of it: the GPUs and their states, the queue's length, and of claims, waiting
// programs and names those of `account` alone.
nlohmann::json to_json_for(const PoolState& state, const std::string& account);

// The latest one, on its way from the supervisor's thread to those that read it. Any thread.
class Published {
public:
    void publish(PoolState state) TNR_EXCLUDES(mutex_) {
        auto fresh = std::make_shared<const PoolState>(std::move(state));
        LockGuard lock(mutex_);
        latest_ = std::move(fresh);
    }
    // Null: none yet.
    std::shared_ptr<const PoolState> latest() const TNR_EXCLUDES(mutex_) {
        LockGuard lock(mutex_);
        return latest_;
    }

private:
    mutable Mutex mutex_;
    std::shared_ptr<const PoolState> latest_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::watch
