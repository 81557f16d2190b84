// Which nodes a pool has, and who holds which GPUs on them, as all nodes see it.
//
// A node registers under a lease, which it renews every second; a node that has died is gone for the others when its lease
// has passed, and its claims with it. The registration has a fencing number, and so has each claim: they only ever grow, so of
// two that tell different things the one with the larger number is right.
//
// Never one GPU with two owners:
//   * A GPU belongs to the node that registered it first, also while that node is away. Another node (a GPU that was moved,
//     two servers on one host) gets it when the first has left in good order, or when the operator has removed it.
//   * A claim is in the directory before its first session begins, on condition that the node is registered as it thinks
//     it is, and that no other claim is on any of the GPUs.
//   * A node knows, by a clock that also runs while it sleeps, until when its lease certainly lasts. Later it begins nothing.
//     What runs goes on: nobody else can have those GPUs.
//   * Who has lost a GPU and does not know it yet, because it was stopped meanwhile, is kept off it by fences.hpp.
//
// Every node is told at once which nodes there are, since that seldom changes (when a whole pool is switched on, each hears of
// the others some seconds later: etcd_follower.hpp). Who has claims, and what is free, changes
// with every program: a node asks for it when it needs it, and only for as much as it needs (Question), so that what a claim
// costs does not grow with the pool.
//
// Nothing here blocks. Answers and events come through `post`, in which the owner says how something is run on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api_client/base/result.hpp"
#include "gpu_server/pool/etcd.hpp"

namespace tnr::server {

// Runs it on the owner's thread, later, in order. May be called from any thread.
using Post = std::function<void(std::function<void()>)>;

// CLOCK_BOOTTIME in milliseconds: does not jump, runs on while the machine sleeps, and is one for all processes of a host.
int64_t boot_ms();

struct TypeCount {
    int total = 0, free = 0;
    uint64_t memory_bytes = 0;
    bool operator==(const TypeCount&) const = default;
};

using TypeCounts = std::map<std::string, TypeCount>;  // by type

struct PoolNode {
    std::string name;
    std::string address;     // of its control socket, for clients
    std::string server_key;  // of its CURVE; empty: plain text
    std::string version;
    std::string identity;                // of its state folder: two servers of one name have different ones
    TypeCounts types = {};               // of another node: `free` as of the last look, 0 where it was not asked
    std::vector<std::string> gpus = {};  // UUIDs
    int64_t fence = 0;                   // of its registration
    bool draining = false;
    // The types of all its GPUs, served at the moment or not; nothing: a server of before this was told.
    std::optional<std::set<std::string>> kinds = {};
};

struct PoolClaim {
    std::string node;
    int64_t id = 0;  // in the node's ledger
    std::string account, machine, gpu;
    std::vector<std::string> devices;  // UUIDs
    int64_t began_ms = 0;
    int64_t fence = 0;
};

// What a node wants to know of the others.
struct Question {
    std::set<std::string> accounts = {};  // whose claims
    bool all_claims = false;
    // Nodes with so many free GPUs of a type: some of them. Chosen anew each time, so that not all send their clients to one.
    std::map<std::string, int> free = {};
    bool all_free = false;  // what every node has
    bool operator==(const Question&) const = default;
};
// What several of them ask.
Question together(Question all, const Question& one);

// This node's own registration.
struct Standing {
    bool joined = false;
    int64_t fence = 0;
    int64_t until_ms = 0;                   // boot_ms(); certain
    std::string trouble = {};               // why it is not joined, or was not renewed last time
    std::vector<std::string> refused = {};  // GPUs that belong to another node
    int64_t gpus_fence = 0;  // when those that belong to this one were last found to: larger than all before
    std::string pool = {};   // its identity: fencing numbers of another have nothing to do with these
    std::string hint = {};   // what helps against the trouble, where we know
    bool good() const { return joined && boot_ms() < until_ms; }
};

struct LeaseTimes {
    int64_t ttl_s = 3;          // a dead node's claims are free after that and etcd's own half second
    int64_t renewed_ms = 1000;  // how often: most of what a resting pool costs its etcd
    int64_t margin_ms = 500;    // a node takes its lease for over so long before the others do
    // etcd forgets what is older than once to twice this; its other users may want to look back so far.
    int64_t history_ms = 300'000;
    // When very many nodes come or go at once, they hear of each other as late as this.
    int64_t gathered_ms = 10'000;
    // No other node can come: a SQLite file in a folder that its server has locked. Then nothing ends with the lease.
    bool alone = false;
};

// A registration that goes on in the next server of this process (supervisor/handover.hpp), with its lease.
struct Tenure {
    std::string lease;  // the backend's own word for it
    Standing standing;
    std::vector<PoolClaim> claims;
};

class Directory {
public:
    virtual ~Directory() = default;

    // Called on the owner's thread whenever nodes() or standing() tell something new.
    virtual void on_change(std::function<void()> changed) = 0;

    // Registers this node, and again whenever the lease was lost, with the claims it has then. Goes on until leave(). With
    // `before` it is registered already, as standing() tells at once.
    virtual void join(PoolNode self, std::optional<Tenure> before = {}) = 0;
    // Stops without leaving: for as long as its lease lasts, another process may go on with it.
    virtual Tenure hand_over() = 0;
    // What it has free has changed.
    virtual void tell(const TypeCounts& types) = 0;
    // Its server_key is another now.
    virtual void tell_key(const std::string& server_key) = 0;
    // In good order: the GPUs may be another's from now on. Blocks for a second at most.
    virtual void leave() = 0;

    // Answers with the claim's fencing number; with an Error, the claim must not begin. `types`: what the node has free with
    // it, as tell() would say; it costs nothing here. When `done` runs, claims() has those of its account, as of then.
    // With Unless::others it is not added where the account has claims that claims() did not have: the answer is 0. So who
    // has not looked need not do so before.
    enum class Unless { never, others };
    virtual void add_claim(const PoolClaim& claim, const TypeCounts& types, Unless unless,
                           std::function<void(Result<int64_t>)> done) = 0;
    // As often as it takes. `types`: without it.
    virtual void remove_claim(int64_t id, const TypeCounts& types) = 0;

    // When `then` runs, nodes() and claims() have the answer: as things were at some moment after the call. While the store
    // does not answer, they have what they had.
    virtual void look(const Question& question, std::function<void()> then) = 0;

    // As far as we have heard. Owner's thread.
    virtual const std::map<std::string, PoolNode>& nodes() const = 0;
    virtual const std::map<std::string, PoolClaim>& claims() const = 0;  // that were looked for lately; by node and id
    virtual const Standing& standing() const = 0;
};

// The operator's side, from a process of its own; blocks.
class NodeAdmin {
public:
    virtual ~NodeAdmin() = default;
    struct View {
        std::map<std::string, PoolNode> nodes;    // those that are not there have fence 0
        std::map<std::string, PoolClaim> claims;  // by node and id
    };
    virtual Result<View> view() = 0;
    // A node that drains begins no claims; what runs on it goes on. Kind not_found when there is no such node.
    virtual Result<> drain(const std::string& node, bool on) = 0;
    // For a node that is gone for good: its GPUs may turn up at another. Kind usage while it is there, not_found when there
    // is no such node.
    virtual Result<> remove(const std::string& node) = 0;
};

std::unique_ptr<Directory> make_etcd_directory(const etcd::Address& address, Post post, LeaseTimes times = {});
std::unique_ptr<NodeAdmin> make_etcd_admin(const etcd::Address& address);

// A file on one machine, for the servers there: the default, with one.
Result<std::unique_ptr<Directory>> open_sqlite_directory(const std::string& path, Post post, LeaseTimes times = {});
Result<std::unique_ptr<NodeAdmin>> open_sqlite_admin(const std::string& path);

// ---- What implementations share.

Error no_such_node(const std::string& name);

std::string to_text(const PoolNode& node);
std::string to_text(const TypeCount& count);
std::string to_text(const PoolClaim& claim);
// Foreign bytes: another node may be of another version.
Result<PoolNode> node_from_text(const std::string& text);
Result<TypeCount> count_from_text(const std::string& text);
Result<PoolClaim> claim_from_text(const std::string& text);
std::string claim_name(const std::string& node, int64_t id);  // "gpu-1/17"

}  // namespace tnr::server
