// What a Directory (directory.hpp) is kept in: blocking calls, made from its threads. One thread renews, one writes, one
// follows, one looks; join() comes from the one that renews.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu_server/pool/directory.hpp"
#include "gpu_server/pool/stop_asked.hpp"

namespace tnr::server {

// Something that all nodes can see. They are told of "nodes/NAME" and "drains/NAME"; they look for "claims/NAME/ID" and
// "free/TYPE/NAME".
struct Entry {
    std::string name;
    std::optional<std::string> text;  // nothing: it is gone
    int64_t fence = 0;                // when it was made; of one that is gone, when it went, where the store tells
};
struct Change {
    bool all = false;  // these are all there are
    std::vector<Entry> entries;
    int64_t as_of = 0;  // of all: at which moment, in fences; 0: the store does not tell
};

struct Registration {
    int64_t fence = 0;
    std::vector<std::string> refused;  // GPUs of other nodes
    std::string pool;                  // its identity
};

class Backend {
public:
    virtual ~Backend() = default;

    // A new lease, and under it the node with its claims. Takes the place of an earlier process of the same node at once.
    // Kind usage: another server has this name.
    virtual Result<Registration> join(const PoolNode& self, const std::vector<PoolClaim>& claims) = 0;
    // Goes on with the lease of the process before, under which the node is registered. Asks nothing: renew() does.
    virtual void go_on(const PoolNode& self, const std::string& lease, const Registration& registration) = 0;
    virtual std::string lease() const = 0;
    // False: the lease is gone.
    virtual Result<bool> renew() = 0;

    // Takes those of these GPUs that are nobody's any more.
    struct Adopted {
        std::vector<std::string> refused;  // the others
        int64_t fence = 0;                 // larger than all that were on those taken; 0: none was
    };
    virtual Result<Adopted> adopt(const PoolNode& self, int64_t fence, const std::vector<std::string>& refused) = 0;

    // What it has free. On condition that the registration is still the one with this fence. False: it is not.
    virtual Result<bool> tell_free(const PoolNode& self, int64_t fence) = 0;
    // The rest of what it says of itself, likewise.
    virtual Result<bool> tell_node(const PoolNode& self, int64_t fence) = 0;
    // What was looked for, as of a moment in the store's own count.
    struct Found {
        std::vector<Entry> entries;
        int64_t as_of = 0;
    };
    struct Added {
        int64_t fence = 0;  // the claim's; 0: not added, since its account has a claim that began after `none_since`
        Found claims;       // of its account
        bool gone = false;  // the registration with that fence: not added
    };
    // Kind remote: refused. Kind network: unknown; it may be repeated. Where `telling` is given and it was added,
    // tell_free() is done with it.
    virtual Result<Added> add(const PoolClaim& claim, int64_t fence, const PoolNode* telling,
                              std::optional<int64_t> none_since = {}) = 0;
    // Likewise; whether that was told.
    virtual Result<bool> remove(const PoolClaim& claim, int64_t fence, const PoolNode* telling) = 0;

    // Of what nodes have free, begins behind the node `from` where not all is asked for.
    virtual Result<Found> look(const Question& question, const std::string& from) = 0;
    // The claims of this node that are in the store.
    virtual Result<std::vector<Entry>> claims_of(const std::string& node) = 0;

    // Tells of all nodes and drains first, then what changes, until `told` says false or the connection ends.
    virtual Result<> follow(const std::function<bool(const Change&)>& told, const StopAsked& stopped) = 0;

    // From any thread: what the one that writes waits for ends now, and whether it was done is unknown.
    virtual void give_up_writing() {}

    virtual void leave(const PoolNode& self) = 0;
};

std::unique_ptr<Backend> make_etcd_backend(const etcd::Address& address, LeaseTimes times);

std::unique_ptr<Directory> make_directory(std::unique_ptr<Backend> backend, Post post, LeaseTimes times);

// Builds the pool's picture out of entries.
void apply(const Change& change, std::map<std::string, PoolNode>& nodes, std::map<std::string, PoolClaim>& claims,
           std::map<std::string, bool>& drains);

}  // namespace tnr::server
