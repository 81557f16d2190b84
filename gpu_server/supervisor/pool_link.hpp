// What the pool's other nodes have to say about claims on this one (membership.hpp); tests of the orders of events have
// their own. Called on the event loop, and never waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"
#include "gpu_server/pool/directory.hpp"

namespace tnr::server {

struct Caller;
struct GpuWish;

// What the other nodes have of a type.
struct Elsewhere {
    int total = 0;                // all of them together
    int most = 0, most_free = 0;  // the one that has most: a claim's GPUs are of one node
    uint64_t memory_bytes = 0;
};

class PoolLink {
public:
    virtual ~PoolLink() = default;

    // Whether something new may begin here now: an Error when this node is out of touch with the others.
    virtual Result<> may_begin() const = 0;
    virtual bool draining() const = 0;
    // Until when workers may begin to serve somebody: boot_ms().
    virtual int64_t lease_until_ms() const = 0;

    // False: this account has claims at other nodes, as far as we know. True: perhaps it has none. Who does not look finds out
    // when a claim begins.
    virtual bool nothing_elsewhere(const std::string& account) const = 0;
    // The answer is the claim's fencing number; on an Error it must end. `claim.node` is filled in. With Unless::others it
    // may be 0: not begun, since its account has others; what follows tells of them.
    virtual void began(PoolClaim claim, Directory::Unless unless, std::function<void(Result<int64_t>)> done) = 0;
    // `gpus` come free with it: their indices.
    virtual void ended(int64_t id, const std::vector<int>& gpus) = 0;
    // Before a worker serves a claim with this number on the GPU: the file that tells the worker when that is over
    // (pool/fences.hpp). An Error when it is over already.
    virtual Result<UniqueFd> fence(const std::string& uuid, int64_t number) = 0;
    // What is free here may have changed.
    virtual void changed() = 0;

    // What follows tells of the other nodes as of the last look that asked for it. Runs `then` when this one is done: at once
    // if there are no others.
    virtual void look(const Question& question, std::function<void()> then) = 0;
    virtual std::map<std::string, Elsewhere> offered_elsewhere() const = 0;
    // GPUs that this account has at other nodes, by claims with numbers below this one.
    virtual int held_elsewhere(const std::string& account, int64_t before = INT64_MAX) const = 0;
    // The node to ask instead, as {"redirect": …}: the one with the caller's claim; one with enough free GPUs; one with
    // enough GPUs.
    enum class Need { its_claim, free, any };
    virtual std::optional<nlohmann::json> elsewhere(const Caller& caller, const GpuWish& wish, Need need) = 0;
};

}  // namespace tnr::server
