// Tells of all keys under a prefix, and then of what changes there, for as long as somebody wants to hear. A thousand nodes do
// so of one etcd: while nothing changes under the prefix they cost it next to nothing, whatever happens elsewhere in it.
//
// Beside that it has etcd forget what was: all that ever was is kept until somebody says so.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gpu_server/pool/etcd.hpp"

namespace tnr::server::etcd {

struct FollowTimes {
    // etcd forgets what is older than once to twice this.
    int64_t history_ms = 300'000;
    // A watch that nothing happens on is begun anew after half of this to all of it: by chance, so that nodes that began
    // together do not come together, and never after longer than history_ms. One that would tell no news ends by itself
    // (Client::watch()).
    int64_t watched_ms = 300'000;
    // When more happens than a watch should tell one by one (flood_news in the .cpp), what happens is gathered for half of this to
    // all of it, and fetched as one. 0: never, for what must be known at once.
    int64_t gathered_ms = 0;
    // Or for this long for each key, if that is more. To fetch a key costs some 20 us of processor time at each end, and N who
    // follow fetch N keys each: so spread, it is a fifth of etcd's processor for a thousand of them. All at once starved etcd
    // until leases ended, and everybody came again.
    int64_t gathered_ms_per_key = 100;
};

// Belongs to one thread.
class Follower {
public:
    // `mark`: a key, not under the prefix, that all who follow share: of them, the one that comes first has etcd forget. Empty:
    // that is another follower's task.
    Follower(Address address, std::string prefix, std::string mark, FollowTimes times);

    // `all_as_of`: these are all there were at this revision; 0: they have changed. Until it says false (Ok), or the connection
    // ends.
    using Told = std::function<bool(int64_t all_as_of, const std::vector<Event>& events)>;
    Result<> follow(const Told& told, const StopAsked& stopped);

private:
    // What was told last: as of which revision, and which keys there were.
    struct Heard {
        int64_t revision = 0;
        std::set<std::string> keys = {};
        void note(const std::vector<Event>& events);
    };
    enum class Watched { enough, flooded };
    Result<Watched> watch(Client& client, Heard& heard, const Told& told, const StopAsked& stopped);
    Result<> skip_what_happened_elsewhere(Client& client, Heard& heard);
    Span what_changed(const Heard& heard) const;
    Result<Listing> changed_since(Client& client, const Heard& heard) const;
    Result<> gather(Client& client, const Heard& heard, const StopAsked& stopped) const;
    Result<bool> ride_out_flood(Client& client, Heard& heard, const Told& told, const StopAsked& stopped);
    Result<std::vector<Event>> what_happened(Client& client, Heard& heard) const;
    void forget_history(Client& client);

    const Address address_;
    const std::string prefix_, mark_;
    const FollowTimes times_;
    struct {
        int64_t looked_at_ms = INT64_MIN / 2;
        int64_t changed = 0, revision = 0;  // of the mark, and of etcd, at that time
    } history_;
};

}  // namespace tnr::server::etcd
