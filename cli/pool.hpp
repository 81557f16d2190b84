// The pool of GPUs, as the command line sees it: what types there are, and which machines may use them.
// The real one speaks JSON over ZeroMQ (control_pool.cpp); tests use one in memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/keys.hpp"

namespace tnr::cli {

// Where a pool is and who we are to it. Plain keys: only a pool on loopback answers.
struct PoolLogin {
    std::string address;  // "tcp://host:port"
    wire::ClientKeys keys;
    std::string pool = {};  // PoolHello::pool, as it was last told; empty: never
};

struct GpuType {
    std::string name;  // "h100"
    int total = 0;
    int free = 0;
    uint64_t memory_bytes = 0;
    std::string currency = {};            // of the price
    std::optional<double> per_hour = {};  // of one GPU, where the pool says; unknown where empty
    int together = 0;                     // of the node that has most; 0 of an older server, which does not tell

    // What one machine can have: GPUs of one node.
    int most() const { return std::min(together > 0 ? together : total, control::gpus_per_claim_max); }
};

// GPUs that a machine of ours has at this moment.
struct GpuClaim {
    std::string machine;
    std::string gpu;  // type
    int count = 0;
    std::string since;  // UTC, ISO 8601
    int sessions = 0;   // programs that use them; the claim outlives the last one by a little
};

// A claim of our account as the pool's ledger has it, and what an hour of a GPU cost since when. Milliseconds since 1970.
struct GpuUse {
    int64_t id = 0;
    std::string machine;
    std::string gpu;  // type
    int count = 1;
    int64_t from_ms = 0, to_ms = 0;
    bool ended = true;
    int64_t bytes_up = 0, bytes_down = 0;
    int64_t busy_ms = 0;                              // how long its GPUs had work; 0 of an older server
    int64_t wiped_bytes = 0, wipe_checked_bytes = 0;  // after it: overwritten, and of these read back
    std::string user = {};                            // whose it is, where everybody's were asked for
    // Where a pool adds up claims that are alike (control.hpp): how many, and how long one after the other.
    int64_t claims = 1;
    std::optional<int64_t> held_ms = {};
};
struct GpuPriceSince {
    std::string gpu;
    int64_t since_ms = 0;
    std::string currency;
    std::optional<double> per_hour = {};  // nothing: no price from then on
};
struct PoolBooks {
    std::vector<GpuUse> uses;
    std::vector<GpuPriceSince> prices;  // all there ever were, in the order in which they were set
    std::vector<std::string> silent;    // nodes that do not answer: what they served is not in `uses`
};

// What there is at this moment; of other users' claims no more than which GPUs they hold.
struct PoolNode {
    std::string name, version;
    bool stopping = false;  // takes no new programs
    bool silent = false;    // does not answer: what it has is not known
};
struct PoolGpu {
    std::string node, type;
    int index = 0;
    std::string state;  // free, claimed, kept, wiping, broken
    std::string user = {}, machine = {};
    std::optional<int64_t> held_s = {};
    std::optional<double> busy_share = {};  // of that time
    std::vector<std::string> programs = {};
};
struct PoolWaiting {
    std::string gpu;
    int count = 1, place = 0, of = 0;
    std::string user;
    int64_t waited_s = 0;
    std::string node = {};  // where it waits: each has a queue of its own
};
struct PoolNow {
    int64_t now_ms = 0;
    std::vector<PoolNode> nodes;
    std::vector<PoolGpu> gpus;
    std::vector<PoolWaiting> queue;
    int queue_length = 0;                      // with those of others
    double bytes_up = 0, bytes_down = 0;       // of all claims that we are told of
    std::optional<int64_t> claims_total = {};  // since the server's start, where it says
};

struct PoolHello {
    std::string role = {};             // what we are to it: "account", "machine", "token", "open"
    std::optional<int64_t> time = {};  // it is there, in seconds since 1970; an older server does not tell
    std::string pool = {};             // its identity, the same at each of its nodes; likewise, then empty
};

// Calls ask over the network and give up after a few seconds with an Error of kind network that names the address.
class Pool {
public:
    virtual ~Pool() = default;
    // From now on an address that says nothing is given up after that long, or once `enough` says so. As in Client, whose
    // threads ask.
    virtual void wait_for_connection(std::chrono::milliseconds /*at_most*/) {}
    virtual void give_up_when(std::function<bool()> /*enough*/) {}
    // Succeeds when the pool answers and knows our key.
    virtual Result<PoolHello> hello() = 0;
    virtual Result<std::vector<GpuType>> types() = 0;
    virtual Result<std::vector<GpuClaim>> claims() = 0;
    // What was in use after `since` (seconds since 1970), of our account or, for an operator, of everyone. Claims that are alike
    // may be one GpuUse, where no hour of UTC, no price and none of `borders` (seconds, too) begins or ends between them. An
    // Error of kind usage: a server of before pools told.
    virtual Result<PoolBooks> books(int64_t since, bool everyone, const std::vector<int64_t>& borders) = 0;
    // Likewise.
    virtual Result<PoolNow> now() = 0;
    // Who signed in with a token has this key from now on; the token is used up. May be repeated with the same key.
    virtual Result<> redeem_token(const std::string& public_key) = 0;
    // Both may be repeated: enrolling again replaces the key, forgetting an unknown machine succeeds.
    virtual Result<> enroll_machine(const std::string& name, const std::string& public_key) = 0;
    virtual Result<> forget_machine(const std::string& name) = 0;
};

// Who hears what of a pool, from whichever thread asks it.
struct PoolNews {
    // Its new public key, when its operator has given it one.
    std::function<void(const std::string& server_public)> learned = {};
    // Whether it answers, after an answer and after silence; not when it refuses.
    std::function<void(bool)> answers = {};
};
// `patience`: for how long its address may be silent. One that refuses connections is an Error at once.
Result<std::unique_ptr<Pool>> connect_pool(const PoolLogin& login, PoolNews news = {},
                                           std::chrono::milliseconds patience = control::default_timeout);

// "h100" or "h100:2", the type in small letters.
struct GpuWish {
    std::string type;
    int count = 1;
};
Result<GpuWish> parse_gpu(const std::string& text);

// What the user wants, which the pool has (not: which is free now). `text` as parse_gpu() takes it; empty: the pool's only
// type. Upper and lower case are the same. Else an Error of kind usage that names the types there are; its hint has a type
// behind `command`, such as "tnr start demo --gpu".
Result<GpuWish> choose_gpu(Pool& pool, const std::string& text, const std::string& command);

}  // namespace tnr::cli
